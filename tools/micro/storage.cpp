// fullshard-micro-storage: checkpoints written and read by all ranks, beside plain files of the
// same bytes on the same disk.
#include "base/error.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/posix_file.h"
#include "checkpoint/parallel/load.h"
#include "checkpoint/parallel/saver.h"
#include "comm/agree.h"
#include "comm/topology.h"
#include "micro/program.h"
#include "micro/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fullshard::micro {
namespace {

namespace fs = std::filesystem;
using checkpoint::Piece;
using checkpoint::PosixFile;

/// Weights and moments of a model of 24 matrices, of which each rank holds an equal part.
class TrainingState {
  public:
    TrainingState(const comm::Group& world, std::int64_t bytes_a_rank) {
        constexpr std::int64_t kMatrices = 24, kColumns = 1024;
        const std::int64_t elements = bytes_a_rank * world.size() / 4 / (3 * kMatrices);
        const std::int64_t rows = std::max<std::int64_t>(1, elements / kColumns);
        for (std::int64_t i = 0; i < kMatrices; ++i) {
            parameters_.push_back({fmt::format("layers.{}.weight", i), {rows, kColumns}});
        }
        const std::int64_t numel = rows * kColumns;
        const std::int64_t begin = numel * world.rank() / world.size();
        const auto count =
            static_cast<std::size_t>(numel * (world.rank() + 1) / world.size() - begin);
        memory_.resize(3 * kMatrices * count);
        write_values(0);
        std::span<float> free = memory_;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            for (const checkpoint::State state : checkpoint::kStates) {
                pieces_.push_back({state, i, begin, free.first(count)});
                free = free.subspan(count);
            }
        }
        bytes_ = static_cast<double>(3 * kMatrices * numel) * sizeof(float);
    }

    void write_values(std::int64_t salt) {
        for (std::size_t i = 0; i < memory_.size(); ++i) memory_[i] = value(i, salt);
    }
    void require_values(std::int64_t salt, std::string_view what) const {
        for (std::size_t i = 0; i < memory_.size(); ++i) {
            if (memory_[i] != value(i, salt))
                throw RunError(fmt::format("{}: element {} came back as {}", what, i, memory_[i]));
        }
    }

    const std::vector<checkpoint::NamedShape>& parameters() const { return parameters_; }
    const std::vector<Piece>& pieces() const { return pieces_; }
    double bytes() const { return bytes_; }  ///< of all ranks

  private:
    static float value(std::size_t i, std::int64_t salt) {
        return static_cast<float>((static_cast<std::int64_t>(i) + 17 * salt) % 8191);
    }

    std::vector<checkpoint::NamedShape> parameters_;
    std::vector<float> memory_;
    std::vector<Piece> pieces_;
    double bytes_ = 0;
};

/// A new folder below one that the user chose; it goes with its content.
class Scratch {
  public:
    Scratch(const comm::Group& world, const fs::path& parent) : world_(world) {
        path_ =
            world_.broadcast((parent / fmt::format("micro-storage-{}", ::getpid())).string(), 0);
        comm::agree(world_, [&] {
            if (world_.rank() == 0) fs::create_directories(path_);
        });
    }
    ~Scratch() {
        std::error_code ignored;
        if (world_.rank() == 0) fs::remove_all(path_, ignored);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    const fs::path& path() const { return path_; }

  private:
    comm::Group world_;
    fs::path path_;
};

/// A file of each rank.
class PlainFiles {
  public:
    PlainFiles(const comm::Group& world, const fs::path& folder, const TrainingState& state)
        : path_(folder / fmt::format("plain-{}", world.rank())), state_(state) {}

    void write() const {
        const PosixFile file = PosixFile::create(path_);
        std::int64_t offset = 0;
        for (const Piece& piece : state_.pieces()) {
            file.write_at(offset, std::as_bytes(piece.values));
            offset += static_cast<std::int64_t>(piece.values.size_bytes());
        }
        file.sync_data();
    }
    void read() const {
        const PosixFile file = PosixFile::open(path_);
        std::int64_t offset = 0;
        for (const Piece& piece : state_.pieces()) {
            file.read(offset, std::as_writable_bytes(piece.values));
            offset += static_cast<std::int64_t>(piece.values.size_bytes());
        }
    }
    void remove() const { fs::remove(path_); }

  private:
    fs::path path_;
    const TrainingState& state_;
};

/// One way to save: files, and whether a thread writes them.
class Saves {
  public:
    Saves(const checkpoint::SavingRanks& ranks, fs::path parent, const TrainingState& state)
        : world_(ranks.world),
          parent_(std::move(parent)),
          state_(state),
          saver_(ranks, parent_, state.parameters()) {}

    void save() { folder_ = saver_.save(header_, state_.pieces()); }
    void start() { saver_.start(header_, state_.pieces()); }
    void wait() {
        constexpr double kTimeoutS = 600.0;
        folder_ = saver_.wait(kTimeoutS);
    }
    void load(bool verify) const {
        const checkpoint::Chosen chosen = checkpoint::choose(world_, folder_);
        const auto problems = checkpoint::load(world_, chosen, state_.parameters(), state_.pieces(),
                                               {.verify = verify});
        if (!problems.empty()) throw RunError("the checkpoint does not load: " + problems.front());
    }
    void remove() const {
        world_.barrier();
        if (world_.rank() == 0) fs::remove_all(parent_);
        world_.barrier();
    }

  private:
    comm::Group world_;
    fs::path parent_;
    const TrainingState& state_;
    checkpoint::Saver saver_;
    checkpoint::Manifest header_;
    fs::path folder_;
};

void run_writes(const comm::Group& world, const Options& options, const Report& report) {
    const Scratch scratch(world, options.folder);
    TrainingState state(world, options.mib << 20);
    const PlainFiles plain(world, scratch.path(), state);
    const comm::Topology halves = comm::find_topology(world, std::max(1, world.size() / 2));
    const checkpoint::SavingRanks two{world, halves.node, halves.node_index, halves.nodes()};
    Saves one_file({world, world}, scratch.path() / "one", state);
    Saves file_a_node(two, scratch.path() / "two", state);
    Saves background({world, world}, scratch.path() / "background", state);
    Saves begun({world, world}, scratch.path() / "begun", state);

    const auto check = [&world, &state](Saves& saves, const auto& save, std::string_view what) {
        saves.remove();
        state.write_values(1);
        save();
        state.write_values(2);
        saves.load(/*verify=*/true);
        comm::agree(world, [&] { state.require_values(1, what); });
        saves.remove();
    };
    const auto save_one = [&] { one_file.save(); };
    const auto save_two = [&] { file_a_node.save(); };
    const auto in_background = [&] {
        background.start();
        background.wait();
    };
    const double bytes = state.bytes();
    const std::vector<Contender> contenders{
        {"plain files, one a rank", bytes, [&] { plain.write(); }, [&] { plain.remove(); }},
        {"save, one file", bytes, save_one, [&] { one_file.remove(); },
         [&] { check(one_file, save_one, "save"); }},
        {"save, a file a half of the ranks", bytes, save_two, [&] { file_a_node.remove(); },
         [&] { check(file_a_node, save_two, "save of halves"); }},
        {"save in the background, to its end", bytes, in_background, [&] { background.remove(); },
         [&] { check(background, in_background, "save in the background"); }},
        {"save in the background, until it returns",
         0,
         [&] { begun.start(); },
         [&] { begun.remove(); },
         {},
         [&] { begun.wait(); }},
    };
    const Turns turns(world, contenders, options.rounds);
    report.title(
        fmt::format("Weights and moments, {} MiB a rank, written and synced", options.mib));
    const std::string limit = "plain files, one a rank";
    report.line(turns, limit);
    report.line(turns, "save, one file", {Limit::Of::kSpeed, {limit}, 0.8});
    report.line(turns, "save, a file a half of the ranks", {Limit::Of::kSpeed, {limit}, 0.8});
    report.line(turns, "save in the background, to its end", {Limit::Of::kSpeed, {limit}, 0.8});
    report.line(turns, "save in the background, until it returns",
                {Limit::Of::kSpeed, {"save, one file"}, 20.0});
}

void run_reads(const comm::Group& world, const Options& options, const Report& report) {
    const Scratch scratch(world, options.folder);
    TrainingState state(world, options.mib << 20);
    const PlainFiles plain(world, scratch.path(), state);
    Saves saves({world, world}, scratch.path() / "saved", state);
    plain.write();
    saves.save();
    const auto check = [&] {
        state.write_values(3);
        saves.load(/*verify=*/true);
        comm::agree(world, [&] { state.require_values(0, "load"); });
    };
    const double bytes = state.bytes();
    const std::vector<Contender> contenders{
        {"plain reads", bytes, [&] { plain.read(); }},
        {"load", bytes, [&] { saves.load(/*verify=*/false); }, {}, check},
        {"load, digests checked", bytes, [&] { saves.load(/*verify=*/true); }}};
    const Turns turns(world, contenders, options.rounds);
    report.title(fmt::format("The same out of the page cache, {} MiB a rank", options.mib));
    report.line(turns, "plain reads");
    report.line(turns, "load", {Limit::Of::kBandwidth, {"plain reads"}});
    report.line(turns, "load, digests checked", {Limit::Of::kBandwidth, {"plain reads"}});
}

void run(const comm::Group& world, const Options& options) {
    const Report report("storage", world, options);
    if (options.wants("write")) run_writes(world, options, report);
    if (options.wants("read")) run_reads(world, options, report);
}

}  // namespace
}  // namespace fullshard::micro

int main(int argc, char** argv) {
    using fullshard::micro::run;
    return fullshard::micro::run_program(
        argc, argv,
        {.name = "fullshard-micro-storage",
         .about =
             "Checkpoints saved and loaded by all ranks, beside plain files of as many bytes and\n"
             "processes on the same disk, both synced. Alone or under mpirun.",
         .mib = "MiB of weights and moments of each rank",
         .files = "where checkpoints and plain files are made, and removed at the end",
         .sections = "write, read",
         .defaults = {.rounds = 5, .mib = 256, .folder = "."},
         .run = run});
}
