#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/rng.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/folder_lock.h"
#include "checkpoint/parallel/load.h"
#include "checkpoint/parallel/saver.h"
#include "comm/agree.h"
#include "doctor/checks.h"
#include "doctor/deadline.h"
#include "doctor/file_system.h"
#include "doctor/kept_checkpoints.h"
#include "doctor/scratch_folder.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>

namespace fullshard::doctor {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kElements = std::int64_t{1} << 20;  // of each rank, fp32
constexpr std::int64_t kBytes = 4 * kElements;

/// Waits for what `work` does with files on every rank; it holds copies of all that it uses.
void on_all(const Subject& subject, const std::string& what, const std::function<void()>& work) {
    // Sooner than the others lose patience with this rank.
    comm::agree(subject.world(), [&] { within(subject.limit_s / 2, what, work); });
}

void on_rank_0(const Subject& subject, const std::string& what, const std::function<void()>& work) {
    on_all(
        subject, what, subject.world().rank() == 0 ? work : [] {});
}

Finding kind_of(const Subject& subject, const fs::path& scratch) {
    const auto magic = std::make_shared<std::uint32_t>();
    on_rank_0(subject, "statfs", [=] { *magic = file_system_magic(scratch); });
    const FileSystem found = file_system_of(*magic, subject.topology.nodes());
    const std::string measured =
        fmt::format("{} is on {}", scratch.parent_path().string(), found.name);
    if (found.doubt.empty()) return fine("file system", measured);
    return warning("file system", measured + ": " + found.doubt, "a disk that outlives the job",
                   "set run.dir to a folder of the cluster's parallel file system");
}

Finding space_on(const Subject& subject, const fs::path& scratch) {
    const config::Deck& deck = subject.request.deck;
    const std::optional<Needs>& needs = subject.request.needs;
    const fs::path kept_in = deck.run.dir / checkpoint::kCheckpointsFolder;
    const auto room = std::make_shared<std::array<std::int64_t, 2>>();  // free bytes, folders
    on_rank_0(subject, "the free space", [=] {
        *room = {static_cast<std::int64_t>(fs::space(scratch).available),
                 kept_checkpoints(kept_in)};
    });
    const auto [free, kept] = *room;
    const std::int64_t count =
        needs ? checkpoints_to_come(deck.checkpoint, deck.train.steps, kept) : 1;
    const std::int64_t bytes = needs ? needs->checkpoint_bytes : kBytes * subject.world().size();
    const std::int64_t required = count * (bytes + bytes / 20 + (std::int64_t{1} << 20));
    const std::string measured = fmt::format("{} free for checkpoints", size_text(free));
    const std::string wanted =
        needs ? fmt::format("{} for {} of {} each", size_text(required), count, size_text(bytes))
              : fmt::format("{} for the checks below; name a deck to know", size_text(required));
    if (free >= required) return fine("free space", measured, wanted);
    return failure("free space", measured, wanted,
                   "make room, name another run.dir, or lower checkpoint.keep_last");
}

Finding seen_by_all(const Subject& subject, const fs::path& scratch) {
    constexpr std::string_view kText = "written by rank 0\n";
    const fs::path file = scratch / "seen";
    const double begin = now_seconds();
    on_rank_0(subject, "writing a file", [=] { write_file_atomically(file, kText); });
    // What another node wrote may take the seconds that a cache of attributes lives.
    on_all(subject, "reading a file", [=, limit = subject.limit_s / 4] {
        const double deadline = now_seconds() + limit;
        std::error_code ignored;
        while (!fs::exists(file, ignored) && now_seconds() < deadline)
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        if (read_file(file) != kText)
            throw RunError(fmt::format("{} holds other text than rank 0 wrote", file.string()));
    });
    std::array<double, 1> seconds{now_seconds() - begin};
    subject.world().all_reduce(seconds, comm::Reduction::kMax);
    return fine("files seen by all",
                fmt::format("every rank reads what rank 0 wrote, after {}", time_text(seconds[0])));
}

Finding locks_in(const Subject& subject, const fs::path& scratch) {
    using Lock = std::optional<checkpoint::FolderLock>;
    const auto lock = std::make_shared<Lock>();
    on_rank_0(subject, "locking a file", [=] { lock->emplace(scratch); });
    // One rank of each host, another one than the holder where there is one.
    const bool tries = subject.host.rank() == subject.host.size() - 1;
    const auto taken = std::make_shared<bool>(false);
    on_all(subject, "asking for a lock", [=] {
        if (!tries) return;
        try {
            const checkpoint::FolderLock second(scratch);
            *taken = true;
        } catch (const UsageError&) {
            // Refused, as it must be.
        }
    });
    std::array<std::int64_t, 1> count{*taken ? 1 : 0};
    subject.world().all_reduce(count, comm::Reduction::kSum);
    on_rank_0(subject, "unlocking a file", [=] { lock->reset(); });
    const std::string required = "one holder: two runs must not write to one folder";
    if (count[0] == 0) return fine("locks", "a second taker is refused on every node", required);
    return warning(
        "locks", fmt::format("{} nodes took a lock that rank 0 holds", count[0]), required,
        "mount it with locks (Lustre: -o flock, NFS: version 4), or never start two runs "
        "on one run.dir");
}

float value_at(std::int64_t index) {
    return static_cast<float>(mix(7, static_cast<std::uint64_t>(index)) >> 40);
}

/// A small save by the writer of checkpoints, and a load in which each rank reads another's part.
Finding written_together(const Subject& subject, const fs::path& scratch) {
    const comm::Group& world = subject.world();
    const bool one_file = subject.request.deck.checkpoint.files == config::CheckpointFiles::kOne;
    const checkpoint::SavingRanks ranks =
        one_file ? checkpoint::SavingRanks{world, world}
                 : checkpoint::SavingRanks{world, subject.topology.node,
                                           subject.topology.node_index, subject.topology.nodes()};
    const std::vector<checkpoint::NamedShape> shapes{
        {"doctor", {world.size(), kElements}, /*trainable=*/false}};
    std::vector<float> memory(kElements);
    const std::int64_t mine = world.rank() * kElements;
    for (std::int64_t i = 0; i < kElements; ++i)
        memory[static_cast<std::size_t>(i)] = value_at(mine + i);
    const std::array pieces{checkpoint::Piece{checkpoint::State::kModel, 0, mine, memory}};
    checkpoint::Saver saver(ranks, scratch, shapes);
    const double begin = now_seconds();
    const fs::path folder = saver.save({}, pieces);
    const double written = now_seconds();

    const std::int64_t theirs = (world.rank() + 1) % world.size() * kElements;
    std::ranges::fill(memory, -1.0f);
    const std::array wanted{checkpoint::Piece{checkpoint::State::kModel, 0, theirs, memory}};
    checkpoint::load(world, checkpoint::choose(world, folder), shapes, wanted);
    comm::agree(world, [&] {
        for (std::int64_t i = 0; i < kElements; ++i) {
            if (memory[static_cast<std::size_t>(i)] == value_at(theirs + i)) continue;
            throw RunError(fmt::format("reads other numbers than were written at element {} of {}",
                                       theirs + i, folder.string()));
        }
    });
    std::array<double, 2> seconds{written - begin, now_seconds() - written};
    world.all_reduce(seconds, comm::Reduction::kMax);
    const std::int64_t bytes = kBytes * world.size();
    std::string measured = fmt::format(
        "{} in {} file{} written and synced in {} ({}), read back in {}, every number right",
        size_text(bytes), ranks.files, ranks.files == 1 ? "" : "s", time_text(seconds[0]),
        rate_text(bytes, seconds[0]), time_text(seconds[1]));
    return fine("parallel HDF5", measured);
}

struct Step {
    std::string_view name;
    Finding (*run)(const Subject&, const fs::path&);
    std::string_view remedy;
};

constexpr Step kSteps[] = {
    {"file system", kind_of, "look at run.dir by hand: stat -f"},
    {"free space", space_on, "look at run.dir by hand: df"},
    {"files seen by all", seen_by_all, "set run.dir to a folder that all nodes see and can write"},
    {"locks", locks_in, "set run.dir to a file system with locks"},
    {"parallel HDF5", written_together,
     "try export OMPI_MCA_io=romio321, or checkpoint.files = node; make room if the disk is full"},
};

}  // namespace

Findings check_storage(const Subject& subject) {
    const ScratchFolder scratch(subject.world(), subject.request.deck.run.dir);
    Findings findings;
    for (const Step& step : kSteps) {
        const auto one = guarded(step.name, step.remedy,
                                 [&] { return Findings{step.run(subject, scratch.path())}; });
        findings.insert(findings.end(), one.begin(), one.end());
        // Where ranks do not see the same files, writing together can only fail, or hang.
        if (step.run == seen_by_all && one[0].grade == Grade::kFailure) break;
    }
    return findings;
}

}  // namespace fullshard::doctor
