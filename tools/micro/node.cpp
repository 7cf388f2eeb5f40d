// fullshard-micro-node: what ranks of a node exchange in its shared memory, beside the bandwidth of
// memory and beside MPI's own collectives.
#include "base/aligned_buffer.h"
#include "base/error.h"
#include "comm/node_arena.h"
#include "kernels/ordered_sum.h"
#include "micro/mpi_calls.h"
#include "micro/program.h"
#include "micro/report.h"
#include "micro/streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace fullshard::micro {
namespace {

/// One flat parameter as the resident store holds it: in an arena, once for its values and once for
/// the gradient of each rank, every rank's shard a slice. The same for MPI in private memory.
class SharedUnit {
  public:
    SharedUnit(const comm::Group& world, std::int64_t numel)
        : world_(world),
          numel_(numel / world.size() * world.size()),
          arena_(world, (1 + world.size()) * numel_ * kSize, /*channels=*/1, progress_),
          whole_(numel_),
          gradient_(numel_),
          shard_(numel_ / world.size()),
          spare_(numel_) {
        for (std::int64_t r = 0; r < world.size(); ++r) {
            sources_.push_back(part(1 + r).data() + world.rank() * shard_.span().size());
        }
        std::ranges::fill(own_shard(), 1.0F);
        std::ranges::fill(part(1 + world.rank()), 2.0F);
        std::ranges::fill(gradient_.span(), 2.0F);
        std::ranges::fill(spare_.span(), 1.0F);
    }

    std::vector<Contender> contenders() {
        const double ranks = world_.size();
        const double whole = static_cast<double>(whole_.bytes());
        const auto all = whole_.span();
        const auto mine = shard_.span();
        const auto sum = static_cast<float>(2 * world_.size());
        const auto check = [this](auto run, std::span<float> out, float value) {
            return [this, run, out, value] {
                std::ranges::fill(out, -1.0F);
                run();
                if (!std::ranges::all_of(out, [=](float each) { return each == value; }))
                    throw RunError("a collective computed something else");
                world_.barrier();
            };
        };
        const auto share = [this] { meet(); };
        const auto reduce = [this] { reduce_shard(); };
        const auto all_gather = [=, this] {
            mpi_all_gather(world_, spare_.span().first(mine.size()), all);
        };
        const auto scatter = [=, this] { mpi_reduce_scatter(world_, gradient_.span(), mine); };
        const auto scatter_block = [=, this] {
            mpi_reduce_scatter_block(world_, gradient_.span(), mine);
        };
        const auto copy = [=, this] { std::ranges::copy(gradient_.span(), all.begin()); };
        return {
            {"triad", 3 * whole * ranks,
             [=, this] { triad(all, gradient_.span(), spare_.span(), 0.5F); }},
            {.name = "gather in the node",
             .run = share,
             .check = [this] { check_gather(); },
             .calls = 100},
            {.name = "MPI_Allgather", .run = all_gather, .check = check(all_gather, all, 1.0F)},
            // Of each element all ranks' values are read and the sum is written.
            {"reduce in the node", (ranks + 1) * whole, reduce, {}, check(reduce, mine, sum)},
            {.name = "MPI_Reduce_scatter", .run = scatter, .check = check(scatter, mine, sum)},
            {.name = "MPI_Reduce_scatter_block",
             .run = scatter_block,
             .check = check(scatter_block, mine, sum)},
            // What is summed in place must be copied there first.
            {.name = "MPI_Allreduce",
             .run = [=, this] { mpi_all_reduce(world_, all); },
             .prepare = copy,
             .check = check(
                 [=, this] {
                     copy();
                     mpi_all_reduce(world_, all);
                 },
                 all, sum)},
        };
    }

  private:
    static constexpr std::int64_t kSize = sizeof(float);

    std::span<float> part(std::int64_t number) const {
        auto* const values = reinterpret_cast<float*>(arena_.memory().data());
        return {values + number * numel_, static_cast<std::size_t>(numel_)};
    }
    std::span<float> own_shard() const {
        const std::size_t count = shard_.span().size();
        return part(0).subspan(static_cast<std::size_t>(world_.rank()) * count, count);
    }

    /// All that a gather is where every shard is a slice of the whole: to know that all are there.
    void meet() {
        arena_.post(0);
        arena_.wait(0, ++meetings_, [] { return "the ranks of the node"; });
    }
    void reduce_shard() {
        meet();
        kernels::tree_sum(shard_.span(), sources_);
        meet();
    }
    void check_gather() {
        meet();
        std::ranges::fill(own_shard(), static_cast<float>(meetings_));
        meet();
        const auto wanted = static_cast<float>(meetings_ - 1);
        if (!std::ranges::all_of(part(0), [=](float each) { return each == wanted; }))
            throw RunError("a rank does not see the others' shards");
    }

    comm::Group world_;
    std::int64_t numel_;
    comm::Progress progress_;
    comm::NodeArena arena_;
    AlignedBuffer whole_, gradient_, shard_, spare_;
    std::vector<const float*> sources_;  ///< this rank's shard in each rank's gradient
    std::uint64_t meetings_ = 0;
};

void run(const comm::Group& world, const Options& options) {
    SharedUnit unit(world, (options.mib << 20) / 4);
    const auto contenders = unit.contenders();
    const Turns turns(world, contenders, options.rounds);
    const Report report("node", world, options);
    report.title(fmt::format("A flat parameter of {} MiB within a node", options.mib));
    report.line(turns, "triad");
    report.line(turns, "gather in the node", {Limit::Of::kSpeed, {"MPI_Allgather"}, 100.0});
    const std::vector<std::string> reductions{"MPI_Reduce_scatter", "MPI_Reduce_scatter_block",
                                              "MPI_Allreduce"};
    report.line(turns, "reduce in the node", {Limit::Of::kSpeed, reductions, 2.0});
    report.line(turns, "reduce in the node", {Limit::Of::kBandwidth, {"triad"}, 0.7});
    report.line(turns, "MPI_Allgather");
    for (const std::string& name : reductions) report.line(turns, name);
}

}  // namespace
}  // namespace fullshard::micro

int main(int argc, char** argv) {
    using fullshard::micro::run;
    return fullshard::micro::run_program(
        argc, argv,
        {.name = "fullshard-micro-node",
         .about = "Gather and reduction of one flat parameter by the ranks of a node, beside\n"
                  "STREAM's triad on the same ranks and MPI's own collectives. Under mpirun.",
         .mib = "MiB of the flat parameter",
         .defaults = {.mib = 32},
         .run = run});
}
