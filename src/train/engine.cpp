#include "train/engine.h"

#include "base/error.h"
#include "base/rng.h"
#include "model/stage.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>
#include <vector>

namespace fullshard::train {

namespace {

/// A unit's stages and the parameters whose gradients autograd is asked for.
struct BoundUnit {
    std::vector<std::unique_ptr<model::Stage>> stages;
    std::vector<std::size_t> stage_indices;
    std::vector<model::Parameter> trainable;
};

/// What backward needs of a forward visit.
struct TapeEntry {
    at::Tensor input;  ///< detached leaf; undefined for the first unit
    at::Tensor output;
};

model::Parameter bind_parameter(shard::UnitStore& store, std::int64_t unit_index,
                                const shard::Unit& unit, std::size_t parameter) {
    const shard::Placement& place = unit.placement(parameter);
    const spec::ParameterSpec& spec = unit.parameters()[parameter];
    at::Tensor view = model::tensor_view(
        store.unsharded(unit_index)
            .subspan(static_cast<std::size_t>(place.offset), static_cast<std::size_t>(place.numel)),
        spec.shape);
    view.set_requires_grad(spec.trainable);
    return {view, &store.grad_sink(unit_index), static_cast<std::int64_t>(parameter)};
}

BoundUnit bind_unit(const spec::SimpleTransformer& model, shard::UnitStore& store,
                    std::int64_t unit_index, const shard::Unit& unit) {
    const spec::ModelSpec description = spec::describe(model);
    BoundUnit bound{{}, unit.stages(), {}};
    std::size_t next = 0;
    for (const std::size_t stage : unit.stages()) {
        std::vector<model::Parameter> parameters;
        for (std::size_t i = 0; i < description.stages[stage].parameters.size(); ++i, ++next) {
            parameters.push_back(bind_parameter(store, unit_index, unit, next));
            if (unit.parameters()[next].trainable) bound.trainable.push_back(parameters.back());
        }
        bound.stages.push_back(model::make_stage(model, stage, std::move(parameters)));
    }
    return bound;
}

/// A view: the batch outlives the passes over it.
at::Tensor token_tensor(const std::vector<std::int64_t>& values, const data::TokenBatch& batch) {
    return at::from_blob(const_cast<std::int64_t*>(values.data()), {batch.batch, batch.sequence},
                         at::kLong);
}

void seed_generator(std::uint64_t seed) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
}

}  // namespace

struct Engine::Impl {
    const shard::Schedule& schedule;
    shard::UnitStore& store;
    PhaseClock& clock;
    std::uint64_t seed;
    std::vector<BoundUnit> units;
    std::vector<TapeEntry> tape;  ///< by unit

    BoundUnit& unit(const shard::Visit& visit) {
        return units[static_cast<std::size_t>(visit.unit)];
    }

    shard::Lease begin_visit(const shard::Visit& visit) {
        const auto phase = clock.enter(Phase::kUnshard);
        shard::Lease lease = store.unshard(visit.unit);
        if (visit.prefetch != shard::Visit::kNone) store.prefetch(visit.prefetch);
        return lease;
    }

    /// Runs the unit's stages; the last stage of the model yields the loss.
    at::Tensor run_stages(BoundUnit& bound, at::Tensor x, const model::MicroBatch& batch,
                          const MicroBatchId& id) {
        for (std::size_t i = 0; i < bound.stages.size(); ++i) {
            // Equal masks at any world size, and again if the stage is ever recomputed.
            const std::uint64_t position =
                mix(static_cast<std::uint64_t>(id.index), bound.stage_indices[i]);
            seed_generator(mix(mix(seed, static_cast<std::uint64_t>(id.step)), position));
            auto* head = dynamic_cast<model::HeadStage*>(bound.stages[i].get());
            x = head != nullptr ? head->loss(x, batch) : bound.stages[i]->forward(x, batch);
        }
        return x;
    }

    at::Tensor forward(const model::MicroBatch& batch, const MicroBatchId& id) {
        at::Tensor x;
        for (const shard::Visit& visit : schedule.forward) {
            const shard::Lease lease = begin_visit(visit);
            const auto phase = clock.enter(Phase::kForward);
            // Each visit is a graph of its own: backward enters and leaves it at the unit's
            // borders.
            if (x.defined()) x = x.detach();
            if (x.defined() && batch.training) x.set_requires_grad(true);
            at::Tensor output = run_stages(unit(visit), x, batch, id);
            if (batch.training) tape[static_cast<std::size_t>(visit.unit)] = {x, output};
            x = std::move(output);
        }
        return x;
    }

    void backward() {
        at::Tensor grad_output;  // undefined: the loss is a scalar
        for (const shard::Visit& visit : schedule.backward) {
            BoundUnit& bound = unit(visit);
            const bool trainable = !bound.trainable.empty();
            {
                const shard::Lease lease = begin_visit(visit);
                if (trainable) {
                    const auto phase = clock.enter(Phase::kReduce);
                    store.begin_gradients(visit.unit);
                }
                const auto phase = clock.enter(Phase::kBackward);
                grad_output = differentiate(
                    bound, std::exchange(tape[static_cast<std::size_t>(visit.unit)], {}),
                    grad_output);
            }
            if (trainable) {
                const auto phase = clock.enter(Phase::kReduce);
                store.reduce(visit.unit);
            }
        }
    }

    /// Gradient with respect to the visit's input; those of parameters go to their sinks.
    static at::Tensor differentiate(const BoundUnit& bound, const TapeEntry& entry,
                                    const at::Tensor& grad_output) {
        torch::autograd::variable_list inputs;
        for (const model::Parameter& parameter : bound.trainable) inputs.push_back(parameter.value);
        if (entry.input.defined()) inputs.push_back(entry.input);
        torch::autograd::variable_list grad_outputs;
        if (grad_output.defined()) grad_outputs.push_back(grad_output);
        auto gradients = torch::autograd::grad({entry.output}, inputs, grad_outputs,
                                               /*retain_graph=*/false, /*create_graph=*/false,
                                               /*allow_unused=*/true);
        for (std::size_t i = 0; i < bound.trainable.size(); ++i) {
            if (gradients[i].defined()) model::store_gradient(bound.trainable[i], gradients[i]);
        }
        return entry.input.defined() ? gradients.back() : at::Tensor();
    }

    double run(const data::TokenBatch& batch, const MicroBatchId& id, double loss_factor,
               bool training) {
        const model::MicroBatch micro_batch{token_tensor(batch.tokens, batch),
                                            token_tensor(batch.targets, batch), loss_factor,
                                            training};
        const at::AutoGradMode grad_mode(training);
        const double loss = forward(micro_batch, id).item<double>();
        if (training) backward();
        return loss;
    }
};

Engine::Engine(const spec::SimpleTransformer& model, const shard::Layout& layout,
               const shard::Schedule& schedule, shard::UnitStore& store, PhaseClock& clock,
               std::uint64_t seed, int threads)
    : impl_(
          new Impl{schedule, store, clock, seed, {}, std::vector<TapeEntry>(layout.units.size())}) {
    at::set_num_threads(threads);
    for (std::size_t i = 0; i < layout.units.size(); ++i) {
        impl_->units.push_back(
            bind_unit(model, store, static_cast<std::int64_t>(i), layout.units[i]));
    }
}

Engine::~Engine() = default;

std::string cpu_capability() {
    return at::get_cpu_capability();
}

double Engine::train(const data::TokenBatch& batch, const MicroBatchId& id, double loss_factor) {
    return impl_->run(batch, id, loss_factor, /*training=*/true);
}

double Engine::evaluate(const data::TokenBatch& batch) {
    const auto phase = impl_->clock.enter(Phase::kEvaluation);
    return impl_->run(batch, {}, /*loss_factor=*/1.0, /*training=*/false);
}

}  // namespace fullshard::train
