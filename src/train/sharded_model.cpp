#include "train/sharded_model.h"

#include "comm/agree.h"
#include "shard/initialize.h"
#include "shard/plan.h"
#include "train/assemble.h"
#include "train/text.h"

#include <fmt/format.h>

#include <exception>

namespace fullshard::train {

ShardedModel::ShardedModel(const config::Deck& deck, const config::Batch& batch,
                           const comm::Group& job)
    : topology_(comm::find_topology(job, static_cast<int>(deck.topology.ranks_per_node))),
      lanes_(comm::make_lanes(topology_, deck.comm.node_shared)),
      strategy_(strategy_of(deck.shard)),
      gradient_group_(strategy_.gradients == shard::Holding::kSharded
                          ? world()
                          : comm::Group::self(deck.comm.timeout_s)),
      model_(model_of(deck.model, deck.data)),
      layout_(shard::make_block_layout(spec::describe(model_), strategy_.shards(world().size()))),
      schedule_(shard::make_schedule(layout_)),
      store_options_(store_options_of(deck.shard, deck.fault, deck.run.seed, batch)) {
    comm::agree_equal(world(), "schedule of visits", schedule_.hash(layout_));
    comm::agree(world(), [&] {
        store_kind_ =
            shard::choose_store(strategy_, preference_of(deck.shard), shard::place_of(lanes_));
    });
    store_ = shard::make_store(store_kind_, layout_, world(), lanes_, store_options_);
    shard::initialize_parameters(*store_, layout_, deck.run.seed);
    engine_ = std::make_unique<Engine>(model_, layout_, schedule_, *store_, clock_, deck.run.seed,
                                       static_cast<int>(deck.kernels.threads));
}

ShardedModel::~ShardedModel() {
    if (std::uncaught_exceptions() > 0) return;  // the others may never come
    try {
        world().barrier();
    } catch (
        ...) {  // NOLINT(bugprone-empty-catch): a late peer costs it its memory, not the result
    }
}

shard::Place ShardedModel::place() const {
    if (store_kind_ != shard::StoreKind::kPrivate) return shard::place_of(lanes_);
    return {0, 1, world().rank(), world().size()};
}

std::vector<shard::Allocation> ShardedModel::planned_memory() const {
    return shard::plan_memory(store_kind_, layout_, place(), store_options_);
}

shard::Traffic ShardedModel::planned_traffic(std::int64_t micro_batches,
                                             std::int64_t evaluations) const {
    return shard::plan_traffic(store_kind_, layout_, schedule_, place(), micro_batches,
                               evaluations);
}

std::vector<std::string> ShardedModel::describe() const {
    return {topology_.describe(),
            fmt::format("model: {} parameters in {} units, {}", count_text(layout_.numel()),
                        layout_.units.size(), strategy_.name),
            "store: " + store_->describe()};
}

}  // namespace fullshard::train
