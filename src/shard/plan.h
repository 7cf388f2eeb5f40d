// Memory and traffic predicted from the layout alone, before anything is allocated or sent.
#pragma once

#include "shard/schedule.h"
#include "shard/strategy.h"
#include "shard/unit_store.h"

#include <cstdint>
#include <vector>

namespace fullshard::shard {

/// Every allocation that the store of this kind will make, in bytes, in the order in which
/// `UnitStore::allocations` lists them.
std::vector<Allocation> plan_memory(StoreKind kind, const Layout& layout, const Schedule& schedule,
                                    const Place& place, const StoreOptions& options);

/// What a run does.
struct Work {
    std::int64_t steps = 0;        ///< of `StoreOptions::micro_batches` each
    std::int64_t evaluations = 0;  ///< passes
    /// Values of the parameters that any pass has used: updates and the initial one, if used.
    std::int64_t versions = 1;
};

/// Bytes that the work moves, per rank. With M the bytes of a flat parameter in the compute type
/// (in the reduce type for `reduced`), shard groups of W ranks as N nodes of L, and R replicas:
///   gathered         M (W-1)/W at each unshard. Units that stay unsharded until the update are
///                    unsharded once a version of the parameters. With a smaller group of k ranks
///                    the first unshard of a version takes M (W-1)/W, every other M (k-1)/k.
///   reduced          M (W-1)/W at each reduction; 2 M/W (R-1)/R at each all-reduce over replicas
///   node_local_read  M (L-1)/L at each reduction
///   lane_received    M (N-1)/(N L) at each gather or reduction over N nodes: (N-1)/N M per node;
///                    what an all-reduce over replicas receives
///   copied           M/W at each gather into a slot (with a smaller group M/k there, and once a
///                    version); M at each reduction over one rank where gradients have slots
/// A device has no node: it receives M (W-1)/W at each gather and reduction, whatever way it takes.
/// Reductions happen once a micro-batch, or once a step without sharded accumulation; all-reduces
/// over replicas once a reduction under SumOrder::kTree, once a step under kFast.
Traffic plan_traffic(StoreKind kind, const Layout& layout, const Schedule& schedule,
                     const Place& place, const StoreOptions& options, const Work& work);

}  // namespace fullshard::shard
