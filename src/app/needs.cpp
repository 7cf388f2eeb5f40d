#include "app/needs.h"

#include "comm/agree.h"
#include "train/parameter_groups.h"
#include "train/sharding_plan.h"

namespace fullshard::app {

namespace {

/// Weights of all parameters and both moments of those that are trained, all fp32.
std::int64_t checkpoint_bytes(const shard::Layout& layout) {
    std::int64_t bytes = 0;
    for (const shard::Unit& unit : layout.units) {
        for (const spec::ParameterSpec& parameter : unit.parameters())
            bytes += parameter.numel() * (parameter.trainable ? 3 : 1) * size_of(DType::kFloat32);
    }
    return bytes;
}

}  // namespace

doctor::Needs needs_of_run(const config::Deck& deck, const comm::Group& job,
                           const train::ModelFactory& custom_model) {
    config::Batch batch;
    spec::ModelSpec spec;
    comm::agree(job, [&] {
        batch = config::resolve_batch(deck, job.size());
        spec = train::with_groups(train::make_model(deck, custom_model)->spec(), deck.optimizer);
    });
    const train::ShardingPlan plan = train::plan_sharding(deck, batch, spec, job);
    doctor::Needs needs{.checkpoint_bytes = checkpoint_bytes(plan.layout)};
    // One rank allocates for all of its node; alone it takes private memory.
    const comm::Group& node = plan.mesh.lanes.node;
    if (node.size() == 1 || node.rank() != 0) return needs;
    for (const shard::Allocation& item : plan.memory()) {
        if (item.node_shared) needs.shared_bytes += item.bytes;
    }
    return needs;
}

}  // namespace fullshard::app
