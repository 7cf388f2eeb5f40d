#include "train/sharded_model.h"

#include "shard/initialize.h"

#include <exception>
#include <utility>

namespace fullshard::train {

namespace {

EngineOptions engine_options_of(const config::Deck& deck, std::shared_ptr<const kernels::Gemm> gemm,
                                RunDevice* device) {
    return {.seed = deck.run.seed,
            .threads = static_cast<int>(deck.kernels.threads),
            .compute = deck.precision.param,
            .buffer = deck.precision.buffer,
            .checkpoint_every_block = deck.train.activation_checkpointing,
            .gemm = std::move(gemm),
            .device = device == nullptr
                          ? std::nullopt
                          : std::optional(model::OnDevice{device->kernels(), device->compute()})};
}

std::unique_ptr<shard::UnitStore> make_store(const ShardingPlan& plan, RunDevice* device) {
    if (device == nullptr) {
        return shard::make_store(plan.kind, plan.layout, plan.schedule, plan.mesh, plan.options);
    }
    return device->make_store(plan.topology.world, plan.mesh, plan.layout, plan.schedule,
                              plan.options);
}

}  // namespace

ShardedModel::ShardedModel(const config::Deck& deck, const config::Batch& batch,
                           std::shared_ptr<const model::Model> model, const spec::ModelSpec& spec,
                           std::shared_ptr<const kernels::Gemm> gemm, const comm::Group& job,
                           std::unique_ptr<RunDevice> device)
    : model_(std::move(model)),
      plan_(plan_sharding(deck, batch, spec, job)),
      device_(device ? std::move(device) : open_device(deck.device, plan_.topology)),
      store_(make_store(plan_, device_.get())) {
    shard::initialize_parameters(*store_, plan_.layout, deck.run.seed, [&](std::size_t stage) {
        return model_->initial_values(stage, deck.run.seed);
    });
    if (device_) device_->show(clock_);
    engine_ = std::make_unique<Engine>(*model_, plan_.layout, plan_.schedule, *store_, clock_,
                                       engine_options_of(deck, std::move(gemm), device_.get()));
}

ShardedModel::~ShardedModel() {
    if (std::uncaught_exceptions() > 0) return;  // the others may never come
    try {
        world().barrier();
    } catch (
        ...) {  // NOLINT(bugprone-empty-catch): a late peer costs it its memory, not the result
    }
}

std::unique_ptr<optim::StateDevice> ShardedModel::make_state() {
    if (device_) return device_->make_state();
    return std::make_unique<optim::HostState>();
}

void ShardedModel::show_on(StepTrace& trace) {
    clock_.show_on(&trace);
    world().ledger().show_on(&trace);
    if (!device_) return;
    device_->spans().show_on(&trace);
    trace.at_end_of_step([this] { device_->spans().hand_over(); });
}

std::vector<std::string> ShardedModel::describe() const {
    std::vector<std::string> lines = plan_.describe();
    lines.push_back("store: " + store_->describe());
    return lines;
}

}  // namespace fullshard::train
