// Checks of several ranks, whole and with something broken.
#include "base/error.h"
#include "comm/agree.h"
#include "comm/mpi_communicator.h"
#include "doctor/checks.h"
#include "doctor/doctor.h"
#include "doctor/sums.h"
#include "support/mpi_world.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <optional>
#include <string>

namespace fullshard::doctor {
namespace {

namespace fs = std::filesystem;
using fullshard::testing::world;

/// A run folder that does not exist yet, in a new folder of which all ranks know.
class Folder {
  public:
    Folder() {
        std::string name = (fs::temp_directory_path() / "fullshard-doctor-test-XXXXXX").string();
        if (world().rank() == 0) {
            EXPECT_NE(::mkdtemp(name.data()), nullptr);
        }
        path_ = world().broadcast(name, 0);
    }
    ~Folder() {
        world().barrier();
        if (world().rank() == 0) fs::remove_all(path_);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    const fs::path& path() const { return path_; }

  private:
    fs::path path_;
};

struct Report {
    bool passed = false;
    std::string text;  ///< on rank 0

    bool has(const std::string& part) const { return text.find(part) != std::string::npos; }
};

Report examined(const config::Deck& deck) {
    Report report;
    report.passed = examine({.job = world(),
                             .deck = deck,
                             .mpi_library = "Open MPI",
                             .thread_level = "MPI_THREAD_FUNNELED"},
                            [&](const std::string& line) { report.text += line; });
    EXPECT_EQ(report.text.empty(), world().rank() != 0);
    return report;
}

config::Deck deck_in(const Folder& folder) {
    config::Deck deck;
    deck.run.dir = folder.path() / "runs/new";
    return deck;
}

/// "ok", "warn" or "FAIL" of a check.
std::string grade_of(const Report& report, const std::string& check) {
    const auto at = report.text.find(" " + check + " ");
    if (at == std::string::npos) return "none";
    const auto line = report.text.rfind('\n', at) + 1;
    return report.text.substr(line, report.text.find(' ', line) - line);
}

TEST(Examine, SoundMachinePassesAndNothingIsLeft) {
    const Folder folder;
    const Report report = examined(deck_in(folder));
    EXPECT_TRUE(report.passed) << report.text;
    EXPECT_TRUE(fs::is_empty(folder.path()));
    if (world().rank() != 0) return;
    for (const char* check : {"launch", "MPI library", "program", "binding", "clocks",
                              "shared memory", "node arena", "single copy", "file system",
                              "free space", "files seen by all", "locks", "parallel HDF5", "sums"})
        EXPECT_NE(grade_of(report, check), "none") << check << '\n' << report.text;
    EXPECT_EQ(grade_of(report, "sums"), "ok");
    EXPECT_EQ(grade_of(report, "locks"), "ok");
    EXPECT_TRUE(report.has(" 0 failed\n"));
}

TEST(Examine, EmulatedNodesHaveGroupsBetweenThemAndAreCalledThat) {
    if (world().size() != 4) GTEST_SKIP() << "two nodes of two ranks: needs 4 ranks";
    const Folder folder;
    config::Deck deck = deck_in(folder);
    deck.topology.ranks_per_node = 2;
    deck.checkpoint.files = config::CheckpointFiles::kNode;
    const Report report = examined(deck);
    EXPECT_TRUE(report.passed) << report.text;
    if (world().rank() != 0) return;
    EXPECT_TRUE(report.has("emulated")) << report.text;
    EXPECT_TRUE(report.has("2 files written")) << report.text;
    for (const char* group : {"world of 4 ranks", "node of 2 ranks", "between nodes of 2 ranks"})
        EXPECT_TRUE(report.has(group)) << group << '\n' << report.text;
}

/// What one check finds.
std::string found_by(Findings (*check)(const Subject&), const Request& request) {
    std::string text;
    for (const Finding& finding : check(subject_of(request))) text += to_text(finding);
    return text;
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(Launch, UnevenNodesAreAWarning) {
    if (world().size() != 3) GTEST_SKIP() << "2 + 1: needs 3 ranks";
    config::Deck deck;
    deck.topology.ranks_per_node = 2;
    const std::string text = found_by(
        check_launch, {.job = world(), .deck = deck, .mpi_library = "", .thread_level = ""});
    EXPECT_TRUE(text.starts_with("warn  launch                 3 ranks on 2 nodes (2 + 1)"))
        << text;
}

TEST(Launch, FindingsOfTheProgramFollow) {
    const config::Deck deck;
    const std::string text = found_by(
        check_launch, {.job = world(),
                       .deck = deck,
                       .mpi_library = "",
                       .thread_level = "",
                       .launch = {failure("end of the job", "unknown", "a time", "export it")}});
    EXPECT_TRUE(has(text, "FAIL  end of the job")) << text;
}

TEST(Programs, OtherLibraryOnOneRankFails) {
    if (world().size() == 1) GTEST_SKIP() << "needs another rank";
    const config::Deck deck;
    const std::string text =
        found_by(check_programs, {.job = world(),
                                  .deck = deck,
                                  .mpi_library = world().rank() == 1 ? "Other MPI" : "Open MPI",
                                  .thread_level = "MPI_THREAD_FUNNELED"});
    EXPECT_TRUE(has(text, "FAIL  MPI library")) << text;
    EXPECT_TRUE(has(text, "rank 0 has Open MPI, MPI_THREAD_FUNNELED, rank 1 has Other MPI"))
        << text;
    EXPECT_TRUE(has(text, "ok    program")) << text;
}

TEST(SharedMemory, DeckThatNeedsMoreThanThereIsFails) {
    const config::Deck deck;
    const Request request{.job = world(),
                          .deck = deck,
                          .mpi_library = "",
                          .thread_level = "",
                          .needs = Needs{.shared_bytes = std::int64_t{1} << 50}};
    const std::string text = found_by(check_shared_memory, request);
    // One rank a node uses none.
    EXPECT_TRUE(text.starts_with(world().size() == 1 ? "ok " : "FAIL ")) << text;
    // Each rank of the node allocates as much.
    const std::string sum = std::to_string(world().size()) + " PiB by the deck";
    EXPECT_EQ(has(text, sum), world().size() > 1) << text;
}

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

/// Devices of which the last rank's can be broken.
class ToyDevices final : public Devices {
  public:
    DeviceFacts open(const comm::Topology& topology) override {
        fail_on_last(topology.world, cannot_open);
        const bool last = topology.world.rank() + 1 == topology.world.size();
        return {last ? "old GPU" : "new GPU", 80 * kGiB, last ? 60 * kGiB : 70 * kGiB};
    }
    void connect(const comm::Topology& topology) override {
        connected = true;
        fail_on_last(topology.world, cannot_connect);
    }

    std::string cannot_open, cannot_connect;
    bool connected = false;

  private:
    static void fail_on_last(const comm::Group& ranks, const std::string& reason) {
        comm::agree(ranks, [&] {
            if (!reason.empty() && ranks.rank() + 1 == ranks.size()) throw RunError(reason);
        });
    }
};

Request request_with(ToyDevices& devices, const config::Deck& deck, std::optional<Needs> needs) {
    return {.job = world(),
            .deck = deck,
            .mpi_library = "",
            .thread_level = "",
            .needs = needs,
            .devices = &devices};
}

TEST(DevicesCheck, TellsKindsAndTheMemoryOfTheFullest) {
    const config::Deck deck;
    ToyDevices devices;
    const std::string text = found_by(check_devices, request_with(devices, deck, std::nullopt));
    EXPECT_TRUE(text.starts_with("ok    devices")) << text;
    EXPECT_TRUE(
        has(text, "1 x old GPU; 60 GiB free of 80 GiB, rank " + std::to_string(world().size() - 1)))
        << text;
    if (world().size() == 3) {
        EXPECT_TRUE(has(text, "2 x new GPU, 1 x old GPU;")) << text;
    }
    EXPECT_TRUE(has(text, "\nok    between devices")) << text;
    EXPECT_TRUE(devices.connected);
}

TEST(DevicesCheck, DeckThatNeedsMoreThanIsFreeFails) {
    const config::Deck deck;
    ToyDevices devices;
    const Needs fits{.device_bytes = 60 * kGiB}, does_not{.device_bytes = 61 * kGiB};
    EXPECT_TRUE(has(found_by(check_devices, request_with(devices, deck, fits)), "ok    devices"));
    const std::string text = found_by(check_devices, request_with(devices, deck, does_not));
    EXPECT_TRUE(text.starts_with("FAIL  devices")) << text;
    EXPECT_TRUE(has(text, "needed: 61 GiB by the deck")) << text;
}

TEST(DevicesCheck, OneThatDoesNotOpenIsAFailureAndLaterChecksRun) {
    const Folder folder;
    const config::Deck deck = deck_in(folder);
    ToyDevices devices;
    devices.cannot_open = "no driver here";
    std::string text;
    const bool passed = examine(request_with(devices, deck, std::nullopt),
                                [&](const std::string& line) { text += line; });
    EXPECT_FALSE(passed);
    EXPECT_FALSE(devices.connected);
    if (world().rank() != 0) return;
    EXPECT_TRUE(has(text, "FAIL  devices ")) << text;
    EXPECT_TRUE(has(text, ": no driver here\n")) << text;
    EXPECT_TRUE(has(text, "      -> start it on nodes with a GPU a rank")) << text;
    EXPECT_FALSE(has(text, "between devices")) << text;
    EXPECT_TRUE(has(text, "ok    sums")) << text;
}

TEST(DevicesCheck, CollectivesThatFailAreAFailureOfTheirOwn) {
    const config::Deck deck;
    ToyDevices devices;
    devices.cannot_connect = "ncclInvalidUsage";
    const std::string text = found_by(check_devices, request_with(devices, deck, std::nullopt));
    EXPECT_TRUE(text.starts_with("ok    devices")) << text;
    EXPECT_TRUE(has(text, "FAIL  between devices ")) << text;
    EXPECT_TRUE(has(text, ": ncclInvalidUsage\n")) << text;
}

TEST(Storage, DeckThatNeedsMoreThanThereIsFails) {
    const Folder folder;
    const config::Deck deck = deck_in(folder);
    const Request request{.job = world(),
                          .deck = deck,
                          .mpi_library = "",
                          .thread_level = "",
                          .needs = Needs{.checkpoint_bytes = std::int64_t{1} << 50}};
    const std::string text = found_by(check_storage, request);
    EXPECT_TRUE(has(text, "FAIL  free space")) << text;
    EXPECT_TRUE(has(text, "for 1 of 1 PiB each")) << text;
    EXPECT_TRUE(has(text, "ok    parallel HDF5")) << text;
    world().barrier();  // rank 0 has cleaned up
    EXPECT_TRUE(fs::is_empty(folder.path()));
}

/// Sums in the order of ranks instead of the tree, as many libraries do.
class InTurn final : public comm::Communicator {
  public:
    explicit InTurn(comm::Communicator& right) : right_(right) {}
    int rank() const override { return right_.rank(); }
    int size() const override { return right_.size(); }
    comm::Handle all_gather(const RankBlocks& blocks, int channel) override {
        return right_.all_gather(blocks, channel);
    }
    comm::Handle reduce_scatter(const RankBlocks& blocks, TypedSpan out, TypedSpan, int) override {
        for (std::int64_t i = 0; i < out.count; ++i) {
            float sum = 0.0f;
            for (int each = 0; each < size(); ++each)
                sum += contribution(each, rank() * blocks.block_count + i, blocks.dtype);
            if (out.dtype == DType::kFloat32) out.as<float>()[static_cast<std::size_t>(i)] = sum;
        }
        return {};
    }
    comm::Handle all_reduce(TypedSpan values, TypedSpan scratch, int channel) override {
        return right_.all_reduce(values, scratch, channel);
    }
    comm::Handle broadcast(TypedSpan values, int root, int channel) override {
        return right_.broadcast(values, root, channel);
    }
    std::int64_t bytes_received() const override { return right_.bytes_received(); }

  protected:
    bool ready(std::int64_t) override { return true; }
    void wait(std::int64_t) override {}

  private:
    comm::Communicator& right_;
};

TEST(WrongResult, AnotherOrderOfSummationIsFound) {
    comm::Progress progress;
    comm::MpiCommunicator right(world(), progress);
    EXPECT_EQ(wrong_result(right, 1021, DType::kFloat32), std::nullopt);
    EXPECT_EQ(wrong_result(right, 1021, DType::kBFloat16), std::nullopt);
    InTurn wrong(right);
    const auto found = wrong_result(wrong, 1021, DType::kFloat32);
    // Up to three ranks, the tree adds them in turn, too.
    ASSERT_EQ(found.has_value(), world().size() == 4);
    if (found) {
        EXPECT_NE(found->find("reduce_scatter of 1021 fp32"), std::string::npos) << *found;
    }
}

}  // namespace
}  // namespace fullshard::doctor
