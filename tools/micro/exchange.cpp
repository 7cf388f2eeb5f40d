// fullshard-micro-exchange: what stores do with parameters and gradients, beside the MPI calls that
// do the same and beside the bandwidth of memory.
#include "base/aligned_buffer.h"
#include "base/error.h"
#include "micro/mpi_calls.h"
#include "micro/one_unit.h"
#include "micro/program.h"
#include "micro/report.h"
#include "micro/streams.h"

#include <fmt/format.h>

#include <array>
#include <vector>

namespace fullshard::micro {
namespace {

using Of = Limit::Of;
const std::vector<std::string> kTriads{"triad", "triad, streaming stores"};
const std::vector<std::string> kReduceScatters{"MPI_Reduce_scatter", "MPI_Reduce_scatter_block",
                                               "MPI_Allreduce"};

/// The same memory traffic without anybody else, and MPI's calls, on private memory of each rank.
class Yardsticks {
  public:
    Yardsticks(const comm::Group& world, std::int64_t numel)
        : world_(world), all_(numel), other_(numel), part_(numel / world.size()) {}

    /// All ranks together move as much as one whole unit has bytes, a stream.
    std::vector<Contender> memory() {
        const auto stream = static_cast<double>(all_.bytes());
        const auto out = part_.span();
        const std::size_t length = out.size();
        const auto a = all_.span().first(length);
        const auto b = all_.span().last(length);
        return {{kTriads[0], 3 * stream, [=] { triad(out, a, b, 0.5F); }},
                {kTriads[1], 3 * stream, [=] { streaming_triad(out, a, b, 0.5F); }},
                {"copy, streaming stores", 2 * stream, [=] { streaming_copy(out, a); }}};
    }

    std::vector<Contender> gathers() {
        return {{"MPI_Allgather",
                 0,
                 [this] { mpi_all_gather(world_, part_.span(), all_.span()); },
                 {},
                 [this] { check_gather(); }},
                {"MPI_Sendrecv", 2 * static_cast<double>(all_.bytes()), [this] {
                     mpi_shift(world_, part_.span(), other_.span().first(part_.span().size()));
                 }}};
    }

    std::vector<Contender> reductions() {
        const auto clear = [this] { std::ranges::fill(all_.span(), 1.0F); };
        return {{kReduceScatters[0], 0,
                 [this] { mpi_reduce_scatter(world_, all_.span(), part_.span()); }, clear,
                 [this] { check_sum(mpi_reduce_scatter); }},
                {kReduceScatters[1], 0,
                 [this] { mpi_reduce_scatter_block(world_, all_.span(), part_.span()); }, clear,
                 [this] { check_sum(mpi_reduce_scatter_block); }},
                {kReduceScatters[2], 0, [this] { mpi_all_reduce(world_, all_.span()); }, clear}};
    }

  private:
    void check_gather() {
        std::ranges::fill(part_.span(), static_cast<float>(world_.rank() + 1));
        mpi_all_gather(world_, part_.span(), all_.span());
        const auto last = static_cast<float>(world_.size());
        if (all_.span().front() != 1.0F || all_.span().back() != last)
            throw RunError("MPI_Allgather gathered something else");
    }

    template <typename Call>
    void check_sum(Call call) {
        std::ranges::fill(all_.span(), static_cast<float>(world_.rank() + 1));
        call(world_, all_.span(), part_.span());
        const auto expected = static_cast<float>(world_.size() * (world_.size() + 1) / 2);
        if (part_.span().front() != expected || part_.span().back() != expected)
            throw RunError("an MPI call summed up something else");
    }

    comm::Group world_;
    AlignedBuffer all_, other_, part_;
};

void append(std::vector<Contender>& list, std::vector<Contender> more) {
    for (Contender& each : more) list.push_back(std::move(each));
}

/// A gather; `bytes` as of a copy that reads and writes what each node receives once.
Contender gather_of(std::string name, double bytes, OneUnit& unit, int calls = 1) {
    return {std::move(name),
            bytes,
            [&] { unit.gather(); },
            {},
            [&] { unit.check_gather(); },
            {},
            calls};
}

Contender reduction_of(std::string name, double bytes, OneUnit& unit) {
    return {std::move(name), bytes, [&] { unit.reduce(); }, [&] { unit.prepare_reduce(); },
            [&] { unit.check_reduce(); }};
}

struct Sections {
    const comm::Group& world;
    const Options& options;
    const Report& report;
    std::int64_t numel;
    double bytes;  ///< of the unit

    void one_node() const {
        if (!options.wants("one node")) return;
        OneUnit resident(world, {.store = shard::StorePreference::kResident}, numel);
        OneUnit slotted(world, {.store = shard::StorePreference::kSlotted}, numel);
        Yardsticks yardsticks(world, numel);
        std::vector<Contender> contenders = yardsticks.memory();
        append(contenders, yardsticks.gathers());
        append(contenders, yardsticks.reductions());
        constexpr int kFences = 100;
        contenders.push_back(gather_of("gather, resident", 0, resident, kFences));
        contenders.push_back(gather_of("gather, slots of the node", 2 * bytes, slotted));
        // Each rank reads its part of every rank's gradient and writes one.
        contenders.push_back(reduction_of("reduce", (world.size() + 1) * bytes, resident));
        const Turns turns(world, contenders, options.rounds);
        report.title(fmt::format("A unit of {} MiB on one node", options.mib));
        for (const std::string& name : kTriads) report.line(turns, name);
        report.line(turns, "copy, streaming stores");
        report.line(turns, "gather, resident", {Of::kSpeed, {"MPI_Allgather"}, 100.0});
        report.line(turns, "gather, slots of the node", {Of::kSpeed, {"MPI_Allgather"}});
        report.line(turns, "gather, slots of the node",
                    {Of::kBandwidth, {"copy, streaming stores"}, 0.7});
        report.line(turns, "reduce", {Of::kSpeed, kReduceScatters, 2.0});
        report.line(turns, "reduce", {Of::kBandwidth, kTriads, 0.7});
    }

    /// Lanes between nodes that are emulated on this one: messages of the MPI library.
    void lanes() const {
        if (!options.wants("lanes") || world.size() < 2) return;
        const int ranks_per_node = std::max(1, world.size() / 2);
        const OneUnit::Kind kind{.store = shard::StorePreference::kSlotted,
                                 .ranks_per_node = ranks_per_node};
        OneUnit unit(world, kind, numel);
        Yardsticks yardsticks(world, numel);
        std::vector<Contender> contenders = yardsticks.memory();
        append(contenders, yardsticks.gathers());
        append(contenders, yardsticks.reductions());
        const auto nodes = static_cast<double>(unit.nodes());
        // Own parts are copied into slots, those of the other nodes are received there.
        contenders.push_back(gather_of("gather over lanes", 2 * nodes * bytes, unit));
        // Sums on the node, exchange, sums over the nodes.
        const double sums = (ranks_per_node > 1 ? ranks_per_node + 1.0 : 0.0) * nodes;
        contenders.push_back(
            reduction_of("reduce over lanes", (sums + 2 * (nodes - 1) + nodes + 1) * bytes, unit));
        const Turns turns(world, contenders, options.rounds);
        report.title(fmt::format("A unit of {} MiB, {}", options.mib, unit.describe()));
        report.line(turns, "MPI_Sendrecv", {Of::kBandwidth, {"copy, streaming stores"}});
        report.line(turns, "gather over lanes", {Of::kSpeed, {"MPI_Allgather"}});
        report.line(turns, "gather over lanes", {Of::kBandwidth, {"MPI_Sendrecv"}});
        report.line(turns, "gather over lanes", {Of::kBandwidth, {"copy, streaming stores"}, 0.7});
        report.line(turns, "reduce over lanes", {Of::kSpeed, kReduceScatters});
        report.line(turns, "reduce over lanes", {Of::kBandwidth, kTriads, 0.7});
    }

    /// Whole replicas: nothing is shared.
    void replicas() const {
        if (!options.wants("replicas") || world.size() < 2) return;
        OneUnit unit(world, {.strategy = "no_shard"}, numel);
        Yardsticks yardsticks(world, numel);
        std::vector<Contender> contenders = yardsticks.reductions();
        contenders.push_back(reduction_of("all-reduce of replicas", 0, unit));
        const Turns turns(world, contenders, options.rounds);
        report.title(fmt::format("A unit of {} MiB, {}", options.mib, unit.describe()));
        report.line(turns, "all-reduce of replicas", {Of::kSpeed, {"MPI_Allreduce"}});
    }
};

void run(const comm::Group& world, const Options& options) {
    const Report report("exchange", world, options);
    // Equal whole cache lines for every rank.
    const std::int64_t line = 16 * world.size();
    const std::int64_t numel = (options.mib << 20) / 4 / line * line;
    const Sections sections{world, options, report, numel, static_cast<double>(numel * 4)};
    sections.one_node();
    sections.lanes();
    sections.replicas();
}

}  // namespace
}  // namespace fullshard::micro

int main(int argc, char** argv) {
    using fullshard::micro::run;
    return fullshard::micro::run_program(
        argc, argv,
        {.name = "fullshard-micro-exchange",
         .about = "How parameters are gathered and gradients reduced by the stores, beside MPI's "
                  "own calls and\n"
                  "beside the bandwidth of memory that as many ranks find in the same run. Under "
                  "mpirun.",
         .mib = "MiB of the unit in fp32",
         .sections = "one node, lanes, replicas",
         .run = run});
}
