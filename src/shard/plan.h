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
std::vector<Allocation> plan_memory(StoreKind kind, const Layout& layout, const Place& place,
                                    const StoreOptions& options);

/// Bytes that one training step moves, per rank; `evaluations` forward passes are added to it. With
/// M the bytes of a flat parameter, W ranks as N nodes of L:
///   gathered         M (W-1)/W at each unshard
///   reduced          M (W-1)/W at each reduction (all-reduce of no_shard: twice that)
///   node_local_read  M (L-1)/L at each reduction
///   lane_received    M (N-1)/(N L) at each gather or reduction: (N-1)/N M per node
///   copied           M/W at each gather into a slot; M at each reduction of a world of one rank
Traffic plan_traffic(StoreKind kind, const Layout& layout, const Schedule& schedule,
                     const Place& place, std::int64_t micro_batches, std::int64_t evaluations);

}  // namespace fullshard::shard
