#include "shard/store_options.h"

namespace fullshard::shard {

namespace {

/// What several visits of a pass use cannot share its slot.
std::vector<SlotNeed> needs_of(const Layout& layout, const Schedule& schedule, bool all_own) {
    std::vector<SlotNeed> needs;
    for (const bool shared : schedule.shared_units(layout)) {
        needs.push_back(all_own || shared ? SlotNeed::kOwn : SlotNeed::kShared);
    }
    return needs;
}

}  // namespace

SlotPlan plan_parameter_slots(const Layout& layout, const Schedule& schedule,
                              const StoreOptions& options, const Place& place) {
    const bool kept = options.residency == Residency::kUntilUpdate || keeps_on_node(options, place);
    return make_slot_plan(layout, options.parameter_slots, needs_of(layout, schedule, kept));
}

SlotPlan plan_gradient_slots(const Layout& layout, const Schedule& schedule,
                             const StoreOptions& options) {
    const bool whole = options.whole_gradients || options.accumulation == Accumulation::kUnsharded;
    std::vector<SlotNeed> needs = needs_of(layout, schedule, whole);
    for (std::size_t i = 0; i < needs.size(); ++i) {
        if (!layout.units[i].trainable()) needs[i] = SlotNeed::kNone;
    }
    return make_slot_plan(layout, options.gradient_slots, needs);
}

DType device_gradient_type(const StoreOptions& options) {
    return options.accumulation == Accumulation::kUnsharded ? DType::kFloat32 : options.reduce;
}

std::int64_t reductions_a_step(const StoreOptions& options) {
    return options.accumulation == Accumulation::kUnsharded ? 1 : options.micro_batches;
}

bool needs_no_gradient_slots(const StoreOptions& options, const Place& place) {
    return place.shards() == 1 && options.gradient() == DType::kFloat32;
}

bool lanes_read_slots(const StoreOptions& options, const Place& place) {
    return place.node_size == 1 &&
           (options.reduce == DType::kFloat32 || options.reduce == options.gradient());
}

bool keeps_on_node(const StoreOptions& options, const Place& place) {
    return options.residency == Residency::kSmallerGroup &&
           options.regather_ranks <= place.node_size;
}

}  // namespace fullshard::shard
