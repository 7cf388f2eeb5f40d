#include "app/needs.h"

#include "train/checkpoints.h"
#include "train/sharding_plan.h"

namespace fullshard::app {

doctor::Needs needs_of_run(const config::Deck& deck, const comm::Group& job,
                           const train::ModelFactory& custom_model) {
    const train::ShardingPlan plan = train::plan_model(deck, custom_model, job).plan;
    doctor::Needs needs{.checkpoint_bytes = train::checkpoint_bytes(plan.layout)};
    if (plan.kind == shard::StoreKind::kDevice) {
        needs.device_bytes = plan.memory_sums().rank;
        return needs;
    }
    // One rank allocates for all of its node; alone it takes private memory.
    const comm::Group& node = plan.mesh.lanes.node;
    if (node.size() == 1 || node.rank() != 0) return needs;
    for (const shard::Allocation& item : plan.memory()) {
        if (item.node_shared) needs.shared_bytes += item.bytes;
    }
    return needs;
}

}  // namespace fullshard::app
