// What users of other trainers reported of saves by several ranks, each test named after the
// symptom.
#include "base/error.h"
#include "base/files.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/parallel/load.h"
#include "checkpoint/parallel/saver.h"
#include "comm/agree.h"
#include "comm/collective_counter.h"
#include "support/mpi_world.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;
using fullshard::testing::world;

/// Less elements than ranks, none that ranks divide, a scalar, and one that is frozen.
std::vector<NamedShape> some_parameters() {
    return {{"wide", {5, 7}}, {"tiny", {3}}, {"scale", {}}, {"frozen", {4, 2}, false}};
}

/// Which part of a tensor this rank holds.
using Share = std::pair<std::int64_t, std::int64_t> (*)(std::int64_t numel);

std::pair<std::int64_t, std::int64_t> equal_share(std::int64_t numel) {
    return {numel * world().rank() / world().size(), numel * (world().rank() + 1) / world().size()};
}
std::pair<std::int64_t, std::int64_t> all_on_the_last(std::int64_t numel) {
    return {0, world().rank() == world().size() - 1 ? numel : 0};
}
std::pair<std::int64_t, std::int64_t> everything(std::int64_t numel) {
    return {0, numel};
}

float value(State state, std::size_t parameter, std::int64_t i) {
    return static_cast<float>(i + 1) + 1000.0f * static_cast<float>(parameter) +
           0.25f * static_cast<float>(state);
}

/// This rank's part of the state, in memory of its own.
struct Held {
    Held(const std::vector<NamedShape>& parameters, Share share, bool filled) {
        for (std::size_t p = 0; p < parameters.size(); ++p) {
            std::int64_t numel = 1;
            for (const std::int64_t extent : parameters[p].shape) numel *= extent;
            const auto [begin, end] = share(numel);
            for (const State state : kStates) {
                if (state != State::kModel && !parameters[p].trainable) continue;
                std::vector<float>& memory = values.emplace_back();
                for (std::int64_t i = begin; i < end; ++i) {
                    memory.push_back(filled ? value(state, p, i)
                                            : std::numeric_limits<float>::quiet_NaN());
                }
                if (begin < end) pieces.push_back({state, p, begin, memory});
            }
        }
    }
    std::vector<std::vector<float>> values;
    std::vector<Piece> pieces;
};

class ReportedSavingBugs : public ::testing::Test {
  protected:
    ReportedSavingBugs() {
        const std::string mine =
            fs::path(::testing::TempDir()) / ("fullshard-saving-" + std::to_string(getpid()));
        parent_ = world().broadcast(mine, 0);
    }
    ~ReportedSavingBugs() override {
        world().barrier();
        if (world().rank() == 0) fs::remove_all(parent_);
    }
    Saver saver(const std::vector<NamedShape>& parameters) const {
        return {{.world = world(), .sharing = world()}, parent_, parameters};
    }
    static Manifest header(std::int64_t step) {
        Manifest header;
        header.progress.step = step;
        return header;
    }
    static constexpr double kTimeoutS = 30;

    fs::path parent_;
};

// https://github.com/h5py/h5py/issues/965, https://github.com/Unidata/netcdf-c/issues/1831,
// https://github.com/openPMD/openPMD-api/issues/554: ranks with nothing to write leave the
// collective, and all hang.
TEST_F(ReportedSavingBugs, RanksWithNothingToWriteDoNotHang) {
    const auto parameters = some_parameters();
    std::int64_t step = 0;
    for (const Share share : {equal_share, all_on_the_last}) {
        for (const bool background : {false, true}) {
            const Held held(parameters, share, true);
            Saver saver = this->saver(parameters);
            ++step;
            if (background) {
                saver.start(header(step), held.pieces);
                saver.wait(kTimeoutS);
            } else {
                saver.save(header(step), held.pieces);
            }
            const Chosen chosen = choose(world(), parent_);
            EXPECT_EQ(chosen.manifest.progress.step, step);
            for (const Share wanted : {equal_share, all_on_the_last, everything}) {
                const Held expected(parameters, wanted, true);
                const Held loaded(parameters, wanted, false);
                load(world(), chosen, parameters, loaded.pieces);
                EXPECT_EQ(loaded.values, expected.values) << step;
            }
        }
    }
}

// https://github.com/HDFGroup/hdf5/issues/1227, https://github.com/HDFGroup/hdf5/issues/5184,
// https://github.com/open-mpi/ompi/issues/7795: one of the ways to write hangs, or writes other
// bytes.
TEST_F(ReportedSavingBugs, ParallelHdf5AndBackgroundThreadsWriteTheSameBytes) {
    const auto parameters = some_parameters();
    const Held held(parameters, equal_share, true);
    Saver saver = this->saver(parameters);
    const fs::path together = saver.save(header(1), held.pieces);
    saver.start(header(2), held.pieces);
    const fs::path background = saver.wait(kTimeoutS);
    EXPECT_EQ(read_file(together / kStateFile), read_file(background / kStateFile));
    EXPECT_EQ(open_folder(together).tensors, open_folder(background).tensors);
}

/// Collectives of the second save, and of the part of a save in the background that stops training.
std::pair<std::int64_t, std::int64_t> collectives_of_saves(
    Saver saver, const std::vector<NamedShape>& parameters) {
    const Held held(parameters, equal_share, true);
    Manifest header;
    header.progress.step = 1;
    saver.save(header, held.pieces);
    const std::int64_t first = collective_count();
    saver.save(header, held.pieces);
    const std::int64_t second = collective_count();
    saver.start(header, held.pieces);
    const std::int64_t third = collective_count();
    saver.wait(30);
    return {second - first, third - second};
}

// https://github.com/pytorch/pytorch/pull/147758, https://github.com/meta-pytorch/tnt/pull/1064:
// most of a save was exchange about tensors. https://github.com/pytorch/pytorch/issues/73383,
// https://github.com/huggingface/accelerate/pull/3982: collectives for each tensor, which some
// ranks enter in another order, or not at all.
TEST_F(ReportedSavingBugs, SaveOf300TensorsNeedsAsManyCollectivesAsOneOf3) {
    std::vector<NamedShape> many;
    for (int i = 0; i < 100; ++i) many.push_back({"parameter" + std::to_string(i), {5}});
    const std::vector<NamedShape> few = {many.front()};
    const auto of_few = collectives_of_saves(saver(few), few);
    EXPECT_GT(of_few.first, 0);
    EXPECT_GT(of_few.second, 0);
    EXPECT_EQ(collectives_of_saves(saver(many), many), of_few);
}

// https://github.com/KempnerInstitute/KempnerForge/issues/49: each rank asked a shared file system
// what is there, got another answer than the others, and entered other collectives.
TEST_F(ReportedSavingBugs, RanksThatSeeOtherFoldersFollowRankZero) {
    const auto parameters = some_parameters();
    const Held held(parameters, equal_share, true);
    const fs::path saved = saver(parameters).save(header(1), held.pieces);
    const bool first = world().rank() == 0;
    std::vector<std::string> skipped;
    const auto seen_by_first = choose_latest(world(), first ? parent_ : "absent", skipped);
    ASSERT_TRUE(seen_by_first);
    EXPECT_EQ(seen_by_first->folder, saved);
    EXPECT_EQ(choose(world(), first ? parent_ : "absent").folder, saved);
    EXPECT_FALSE(choose_latest(world(), first ? "absent" : parent_, skipped));
    EXPECT_THROW(choose(world(), first ? "absent" : parent_), comm::AgreedError);
}

// https://github.com/ByteDance-Seed/VeOmni/pull/1172,
// https://github.com/facebookresearch/metaseq/issues/53: the marker of a whole checkpoint was
// written though another rank had failed. https://github.com/dealii/dealii/issues/11050: a rank
// that threw while the file was open waited in its closing, and the error was never seen.
TEST_F(ReportedSavingBugs, RankThatFailsWhileTheFileIsOpenPublishesNothing) {
    const auto parameters = some_parameters();
    const Held held(parameters, equal_share, true);
    const fs::path saved = saver(parameters).save(header(1), held.pieces);
    for (const SaveStage stage : {SaveStage::kBeforeData, SaveStage::kDuringData}) {
        Saver failing({.world = world(), .sharing = world()}, parent_, parameters,
                      [stage](SaveStage now) {
                          if (world().rank() == world().size() - 1 && now == stage) {
                              throw RunError("input/output error");
                          }
                      });
        std::string error;
        try {
            failing.start(header(2), held.pieces);
            failing.wait(kTimeoutS);
        } catch (const comm::AgreedError& agreed) {
            error = agreed.what();
        }
        EXPECT_NE(error.find("input/output error"), std::string::npos) << error;
        if (stage == SaveStage::kDuringData) {
            EXPECT_THROW(failing.save(header(2), held.pieces), comm::AgreedError);
        }
        world().barrier();
        EXPECT_EQ(find_latest(parent_).folder, saved);
        EXPECT_TRUE(find_latest(parent_).skipped.empty());
        world().barrier();
    }
}

std::int64_t resident_bytes() {
    std::int64_t pages = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident;
    return resident * ::sysconf(_SC_PAGESIZE);
}

// https://github.com/pytorch/pytorch/issues/170163: every save in the background kept a copy.
TEST_F(ReportedSavingBugs, SavesInTheBackgroundDoNotPileUpCopies) {
    const std::int64_t mebibytes = 2;  // of each of three states on this rank
    const std::vector<NamedShape> parameters = {{"w", {world().size(), mebibytes << 18}}};
    const Held held(parameters, equal_share, true);
    Saver saver = this->saver(parameters);
    const auto save = [&] {
        saver.start(header(1), held.pieces);
        saver.wait(kTimeoutS);
        EXPECT_EQ(saver.staging_bytes(), 3 * mebibytes << 20);
    };
    for (int i = 0; i < 2; ++i) save();
    const std::int64_t before = resident_bytes();
    constexpr int kSaves = 8;
    for (int i = 0; i < kSaves; ++i) save();
    // One copy more would be allowed by the allocator's moods; one a save would not.
    EXPECT_LT(resident_bytes() - before, (3 * mebibytes << 20) * kSaves / 4);
}

// https://github.com/pytorch/pytorch/issues/144657: the copy was made when training had gone on.
TEST_F(ReportedSavingBugs, PiecesMayChangeAsSoonAsTheyHaveBeenCopied) {
    const std::int64_t mebibytes = 8;  // of each of three states on this rank: no instant's work
    const std::vector<NamedShape> parameters = {{"a", {world().size(), mebibytes << 17}},
                                                {"b", {world().size(), mebibytes << 17}}};
    const Held expected(parameters, equal_share, true);
    Held held(parameters, equal_share, true);
    Saver saver = this->saver(parameters);
    saver.start(header(1), held.pieces);
    std::int64_t elements = 0;
    for (std::vector<float>& piece : held.values) {
        elements += std::ssize(piece);
        saver.wait_for_copy(elements);
        std::ranges::fill(piece, std::numeric_limits<float>::quiet_NaN());
    }
    const Chosen chosen = choose(world(), saver.wait(kTimeoutS));
    const Held loaded(parameters, equal_share, false);
    load(world(), chosen, parameters, loaded.pieces);
    EXPECT_EQ(loaded.values, expected.values);
}

// A disk that hangs while rank 0 commits, and comes back when the save has been given up.
TEST_F(ReportedSavingBugs, SaveThatWasGivenUpDoesNotAppearLater) {
    const auto parameters = some_parameters();
    const Held held(parameters, equal_share, true);
    // Shared with a thread that outlives everything here.
    auto hangs = std::make_shared<std::atomic<bool>>(true);
    auto ended = std::make_shared<std::atomic<bool>>(world().rank() != 0);
    {
        Saver saver({.world = world(), .sharing = world()}, parent_, parameters,
                    [hangs, ended](SaveStage stage) {
                        if (stage != SaveStage::kBeforeManifest) return;
                        hangs->wait(true);
                        *ended = true;
                        ended->notify_all();
                    });
        saver.start(header(1), held.pieces);
        EXPECT_THROW(saver.wait(0.5), comm::AgreedError);
    }
    *hangs = false;
    hangs->notify_all();
    ended->wait(false);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    world().barrier();
    EXPECT_FALSE(find_latest(parent_).folder);
}

}  // namespace
}  // namespace fullshard::checkpoint
