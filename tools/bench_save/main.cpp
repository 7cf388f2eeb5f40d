// fullshard-bench-save DIR [MIB_A_RANK [REPEATS]]: seconds to save checkpoints into DIR in each
// way, beside a file of each rank that it writes and syncs plainly. Variants take turns, so that a
// busy machine disturbs them alike; medians are printed, of the slowest rank each time.
#include "base/clock.h"
#include "base/error.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/posix_file.h"
#include "checkpoint/parallel/saver.h"
#include "comm/mpi_session.h"
#include "comm/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Weights and moments of a model of 24 matrices, of which each rank holds an equal part.
struct State {
    State(const comm::Group& world, std::int64_t bytes_a_rank) {
        constexpr std::int64_t kMatrices = 24, kColumns = 1024;
        const std::int64_t elements = bytes_a_rank * world.size() / 4 / (3 * kMatrices);
        const std::int64_t rows = std::max<std::int64_t>(1, elements / kColumns);
        for (std::int64_t i = 0; i < kMatrices; ++i) {
            parameters.push_back({fmt::format("layers.{}.weight", i), {rows, kColumns}});
        }
        const std::int64_t numel = rows * kColumns;
        const std::int64_t begin = numel * world.rank() / world.size();
        const std::int64_t count = numel * (world.rank() + 1) / world.size() - begin;
        memory.resize(static_cast<std::size_t>(3 * kMatrices * count));
        for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i);
        std::span<float> free = memory;
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            for (const checkpoint::State state : kStates) {
                pieces.push_back({state, i, begin, free.first(static_cast<std::size_t>(count))});
                free = free.subspan(static_cast<std::size_t>(count));
            }
        }
    }
    std::vector<NamedShape> parameters;
    std::vector<float> memory;
    std::vector<Piece> pieces;
};

struct Variant {
    std::string name;
    std::vector<double> seconds = {};
    std::vector<double> stall_s = {};
};

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

double slowest(const comm::Group& world, double seconds) {
    std::array<double, 1> value{seconds};
    world.all_reduce(value, comm::Reduction::kMax);
    return value[0];
}

void write_plainly(const comm::Group& world, const fs::path& folder, const State& state) {
    const PosixFile file = PosixFile::create(folder / fmt::format("plain-{}", world.rank()));
    std::int64_t offset = 0;
    for (const Piece& piece : state.pieces) {
        file.write_at(offset, std::as_bytes(piece.values));
        offset += static_cast<std::int64_t>(piece.values.size_bytes());
    }
    file.sync_data();
}

void run(const comm::Group& world, const fs::path& folder, std::int64_t mib, std::int64_t repeats) {
    const State state(world, mib << 20);
    const SavingRanks one{world, world};
    const comm::Topology nodes = comm::find_topology(world, std::max(1, world.size() / 2));
    const SavingRanks two{world, nodes.node, nodes.node_index, nodes.nodes()};
    Manifest header;
    std::vector<Variant> variants{{"a plain file of each rank"},
                                  {"parallel HDF5, one file"},
                                  {"parallel HDF5, a file of each half of the ranks"},
                                  {"in the background, one file"},
                                  {"in the background, a file of each half of the ranks"}};
    Saver to_one(one, folder / "one", state.parameters);
    Saver to_two(two, folder / "two", state.parameters);
    for (std::int64_t repeat = 0; repeat < repeats; ++repeat) {
        header.progress.step = repeat;
        for (std::size_t v = 0; v < variants.size(); ++v) {
            world.barrier();
            const double begin = now_seconds();
            double stall = 0.0;
            if (v == 0) {
                write_plainly(world, folder, state);
            } else {
                Saver& saver = v % 2 == 1 ? to_one : to_two;
                if (v <= 2) {
                    saver.save(header, state.pieces);
                } else {
                    saver.start(header, state.pieces);
                    stall = now_seconds() - begin;
                    saver.wait(600.0);
                }
            }
            variants[v].seconds.push_back(slowest(world, now_seconds() - begin));
            variants[v].stall_s.push_back(
                slowest(world, v <= 2 ? variants[v].seconds.back() : stall));
            world.barrier();
            if (world.rank() == 0) {
                for (const char* name : {"one", "two"}) fs::remove_all(folder / name);
            }
            fs::remove(folder / fmt::format("plain-{}", world.rank()));
        }
    }
    if (world.rank() != 0) return;
    const double gigabytes = static_cast<double>(state.memory.size() * sizeof(float)) * 1e-9 *
                             static_cast<double>(world.size());
    const double plain = median(variants[0].seconds);
    fmt::print("{} ranks, {:.2f} GB, medians of {}\n", world.size(), gigabytes, repeats);
    for (const Variant& variant : variants) {
        const double seconds = median(variant.seconds);
        fmt::print("{:<54}{:>8.3f} s {:>8.3f} GB/s {:>6.2f} x plain, begins within {:.3f} s\n",
                   variant.name, seconds, gigabytes / seconds, seconds / plain,
                   median(variant.stall_s));
    }
}

}  // namespace
}  // namespace fullshard::checkpoint

int main(int argc, char** argv) {
    fullshard::comm::MpiSession session(argc, argv);
    try {
        if (argc < 2) throw fullshard::UsageError("use: fullshard-bench-save DIR [MIB [REPEATS]]");
        const auto world = fullshard::comm::Group::world(600.0);
        const std::filesystem::path folder = argv[1];
        std::filesystem::create_directories(folder);
        fullshard::checkpoint::run(world, folder, argc > 2 ? std::stoll(argv[2]) : 64,
                                   argc > 3 ? std::stoll(argv[3]) : 5);
    } catch (const std::exception& error) {
        fullshard::comm::MpiSession::abort(error.what(), 1);
    }
    return 0;
}
