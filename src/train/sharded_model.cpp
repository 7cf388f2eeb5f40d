#include "train/sharded_model.h"

#include "shard/initialize.h"

#include <exception>
#include <utility>

namespace fullshard::train {

namespace {

EngineOptions engine_options_of(const config::Deck& deck,
                                std::shared_ptr<const kernels::Gemm> gemm) {
    return {.seed = deck.run.seed,
            .threads = static_cast<int>(deck.kernels.threads),
            .compute = deck.precision.param,
            .buffer = deck.precision.buffer,
            .checkpoint_every_block = deck.train.activation_checkpointing,
            .gemm = std::move(gemm)};
}

}  // namespace

ShardedModel::ShardedModel(const config::Deck& deck, const config::Batch& batch,
                           std::shared_ptr<const model::Model> model, const spec::ModelSpec& spec,
                           std::shared_ptr<const kernels::Gemm> gemm, const comm::Group& job)
    : model_(std::move(model)),
      plan_(plan_sharding(deck, batch, spec, job)),
      store_(
          shard::make_store(plan_.kind, plan_.layout, plan_.schedule, plan_.mesh, plan_.options)) {
    shard::initialize_parameters(*store_, plan_.layout, deck.run.seed, [&](std::size_t stage) {
        return model_->initial_values(stage, deck.run.seed);
    });
    engine_ = std::make_unique<Engine>(*model_, plan_.layout, plan_.schedule, *store_, clock_,
                                       engine_options_of(deck, std::move(gemm)));
}

ShardedModel::~ShardedModel() {
    if (std::uncaught_exceptions() > 0) return;  // the others may never come
    try {
        world().barrier();
    } catch (
        ...) {  // NOLINT(bugprone-empty-catch): a late peer costs it its memory, not the result
    }
}

std::vector<std::string> ShardedModel::describe() const {
    std::vector<std::string> lines = plan_.describe();
    lines.push_back("store: " + store_->describe());
    return lines;
}

}  // namespace fullshard::train
