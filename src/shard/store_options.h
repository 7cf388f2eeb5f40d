// What users choose about a store.
#pragma once

#include "base/span.h"
#include "shard/place.h"
#include "shard/schedule.h"
#include "shard/unit_store.h"

#include <cstdint>

namespace fullshard::shard {

/// In which order the gradients of micro-batches and replicas are added.
enum class SumOrder : std::uint8_t {
    kTree,  ///< one balanced tree over all micro-batches of a step: equal bits at any world size
    kFast,  ///< as they come, and over replicas once a step
};

/// Where the gradients of a step's micro-batches are added up.
enum class Accumulation : std::uint8_t {
    kSharded,    ///< each micro-batch is reduced, the sum is sharded
    kUnsharded,  ///< each rank adds its own in fp32, whole; reduced once a step (`no_sync`); fast
                 ///< only
};

struct StoreOptions {
    DType compute = DType::kFloat32;  ///< of unsharded parameters, and of gradients from backward
    /// Gradients are rounded to it before, and sums after, each addition over ranks; what travels
    /// has this type, or the narrower `compute`. Micro-batches are always added in fp32.
    DType reduce = DType::kFloat32;
    Residency residency = Residency::kWhileUsed;
    std::int64_t regather_ranks = 0;   ///< of Residency::kSmallerGroup; divides the shard group
    std::int64_t parameter_slots = 2;  ///< per size class; used where units are not resident
    std::int64_t gradient_slots = 2;   ///< per size class, on each rank
    bool whole_gradients = false;      ///< a gradient slot for each unit (ZeRO-1)
    std::int64_t micro_batches = 1;    ///< per rank and step
    SumOrder order = SumOrder::kTree;
    Accumulation accumulation = Accumulation::kSharded;
    bool progress_thread = false;  ///< messages and sums go on while the rank computes
    Faults faults = {};

    /// Type of gradient slots: what backward writes.
    DType gradient() const {
        return accumulation == Accumulation::kUnsharded ? DType::kFloat32 : compute;
    }
};

/// Type of gradient slots on a device, where backward writes what travels.
DType device_gradient_type(const StoreOptions& options);

/// Slots for unsharded parameters of a store whose units are not resident. A unit has one of its
/// own when it stays unsharded between visits.
SlotPlan plan_parameter_slots(const Layout& layout, const Schedule& schedule,
                              const StoreOptions& options, const Place& place);
/// Slots of one rank for gradients; frozen units have none.
SlotPlan plan_gradient_slots(const Layout& layout, const Schedule& schedule,
                             const StoreOptions& options);

/// Sums of a unit over the ranks in one step: one a micro-batch, or one for all of them.
std::int64_t reductions_a_step(const StoreOptions& options);

/// Whether backward writes where micro-batches are added up, without slots between: a shard group
/// of one rank whose gradients are fp32.
bool needs_no_gradient_slots(const StoreOptions& options, const Place& place);

/// Whether an exchange over lanes takes its blocks from the gradient slot itself, in the slot's
/// type: no ranks of a node are summed first, and nothing is rounded.
bool lanes_read_slots(const StoreOptions& options, const Place& place);

/// Whether the smaller group that gathers units for backward lies within a node: then it keeps them
/// in the node's shared slots, and nothing is gathered.
bool keeps_on_node(const StoreOptions& options, const Place& place);

}  // namespace fullshard::shard
