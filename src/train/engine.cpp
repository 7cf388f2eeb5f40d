#include "train/engine.h"

#include "base/error.h"
#include "base/rng.h"
#include "model/libtorch_gemm.h"
#include "model/linear.h"
#include "model/stage.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

namespace fullshard::train {

namespace {

struct BoundStage {
    std::unique_ptr<model::Stage> stage;
    model::HeadStage* head = nullptr;  ///< the same stage if it is the last
    std::vector<model::Parameter> trainable;
    bool checkpointed = false;
};

/// What backward needs of a stage's forward.
struct TapeEntry {
    at::Tensor input;   ///< detached leaf; undefined for the first stage
    at::Tensor output;  ///< undefined of a checkpointed stage and of the head
};

/// One pass over a micro-batch.
struct Pass {
    model::MicroBatch batch;
    MicroBatchId id;
    /// Numbers of the tokens whose logits are asked for in place of the loss; undefined: the loss.
    at::Tensor wanted_rows = {};
};

model::Parameter bind_parameter(shard::UnitStore& store, const shard::Layout& layout,
                                const shard::ParameterHome& home) {
    const shard::Unit& unit = layout.units[home.unit];
    const auto unit_index = static_cast<std::int64_t>(home.unit);
    const shard::Placement& place = unit.placement(home.parameter);
    const spec::ParameterSpec& spec = unit.parameters()[home.parameter];
    at::Tensor view =
        model::tensor_view(store.unsharded(unit_index).part(place.offset, place.numel), spec.shape);
    view.set_requires_grad(spec.trainable);
    return {view, &store.grad_sink(unit_index), static_cast<std::int64_t>(home.parameter)};
}

BoundStage bind_stage(const model::Model& model, std::size_t index, shard::UnitStore& store,
                      const shard::Layout& layout, const model::Computing& computing,
                      DType buffer) {
    std::vector<model::Parameter> parameters;
    for (const shard::ParameterHome& home : layout.homes[index]) {
        parameters.push_back(bind_parameter(store, layout, home));
    }
    BoundStage bound;
    bound.stage = model.make_stage(index, std::move(parameters), computing);
    bound.stage->set_buffer_type(model::scalar_type(buffer));
    for (const model::Parameter& parameter : bound.stage->parameters()) {
        if (parameter.value.requires_grad()) bound.trainable.push_back(parameter);
    }
    return bound;
}

at::Device device_of(const TypedSpan& memory) {
    return memory.device == DeviceKind::kHost ? at::kCPU : at::kCUDA;
}

/// On the CPU a view: the batch outlives the passes over it. Undefined where the batch has no such
/// values.
at::Tensor token_tensor(const std::vector<std::int64_t>& values, const data::TokenBatch& batch,
                        at::Device device) {
    if (values.empty()) return {};
    return at::from_blob(const_cast<std::int64_t*>(values.data()), {batch.batch, batch.sequence},
                         at::kLong)
        .to(device);
}

model::MicroBatch micro_batch_of(const data::TokenBatch& batch, bool causal, at::Device device) {
    model::MicroBatch result{.tokens = token_tensor(batch.tokens, batch, device),
                             .targets = token_tensor(batch.targets, batch, device),
                             .positions = token_tensor(batch.positions, batch, device)};
    if (!batch.positions.empty()) {
        result.longest_document = *std::ranges::max_element(batch.positions) + 1;
    }
    if (!batch.documents.empty()) {
        result.attention_mask =
            model::document_mask(token_tensor(batch.documents, batch, device), causal);
    }
    return result;
}

}  // namespace

struct Engine::Impl {
    const shard::Schedule& schedule;
    shard::UnitStore& store;
    PhaseClock& clock;
    std::uint64_t seed;
    bool causal;                                ///< the model
    at::Device device;                          ///< of the store's memory
    std::shared_ptr<const kernels::Gemm> gemm;  ///< of the stages
    std::vector<BoundStage> stages;
    std::vector<std::string> names;   ///< by stage
    std::size_t first_trainable = 0;  ///< no gradient is needed before this stage
    std::vector<TapeEntry> tape;      ///< by stage
    std::vector<at::Tensor> losses;   ///< of micro-batches, not taken yet

    std::string_view name_of(const shard::Visit& visit) const {
        return names[visit.stages.front()];
    }

    std::vector<shard::Lease> begin_visit(const shard::Visit& visit) {
        const auto phase = clock.enter(Phase::kUnshard, name_of(visit));
        std::vector<shard::Lease> leases;
        leases.reserve(visit.uses.size());
        for (const shard::UnitUse& use : visit.uses) leases.push_back(store.unshard(use));
        for (const std::int64_t unit : visit.prefetch) store.prefetch(unit);
        return leases;
    }

    void end_visit(const shard::Visit& visit, std::vector<shard::Lease>& leases) {
        const auto phase = clock.enter(Phase::kUnshard, name_of(visit));
        for (shard::Lease& lease : leases) lease.release();
        for (const std::int64_t unit : visit.prefetch_after) store.prefetch(unit);
    }

    /// The stage's output; the last stage of the model yields the loss, or logits if asked.
    at::Tensor run(std::size_t index, const at::Tensor& x, const Pass& pass) {
        // Equal masks at any world size, and again when the stage is recomputed.
        const std::uint64_t position = mix(static_cast<std::uint64_t>(pass.id.index), index);
        model::seed_generator(mix(mix(seed, static_cast<std::uint64_t>(pass.id.step)), position),
                              device);
        const BoundStage& bound = stages[index];
        if (bound.head == nullptr) return bound.stage->forward(x, pass.batch);
        if (pass.wanted_rows.defined()) {
            return bound.head->logits_at(x, pass.batch, pass.wanted_rows);
        }
        return bound.head->loss(x, pass.batch);
    }

    /// Runs the stage and writes down what its backward pass will need. Each stage is a graph of
    /// its own: backward enters and leaves it at the stage's borders. A head that learns is left to
    /// backward as a whole, which is next: it computes the loss and its gradient in one go.
    at::Tensor record(std::size_t index, const at::Tensor& x, const Pass& pass) {
        const bool learns = pass.batch.training && index >= first_trainable;
        const BoundStage& bound = stages[index];
        const at::AutoGradMode grad_mode(learns && !bound.checkpointed);
        if (!learns) return run(index, x, pass);
        TapeEntry& entry = tape[index];
        if (x.defined()) {
            entry.input = x.detach();
            entry.input.set_requires_grad(index > first_trainable);
        }
        if (bound.head != nullptr) return {};
        at::Tensor output = run(index, entry.input, pass);
        if (!bound.checkpointed) entry.output = output;
        return output;
    }

    at::Tensor forward(const std::vector<shard::Visit>& visits, const Pass& pass) {
        at::Tensor x;
        for (const shard::Visit& visit : visits) {
            std::vector<shard::Lease> leases = begin_visit(visit);
            {
                const auto phase = clock.enter(Phase::kForward, name_of(visit));
                const auto computing = store.computing();
                for (const std::size_t stage : visit.stages) x = record(stage, x, pass);
            }
            end_visit(visit, leases);
        }
        return x;
    }

    /// Returns the loss.
    at::Tensor backward(const Pass& pass) {
        at::Tensor loss;
        // Of the loss with respect to the output of the next stage to differentiate.
        at::Tensor grad;
        for (const shard::Visit& visit : schedule.backward) {
            std::vector<shard::Lease> leases = begin_visit(visit);
            {
                const auto phase = clock.enter(Phase::kReduce, name_of(visit));
                for (const std::int64_t unit : visit.first_gradients) store.begin_gradients(unit);
            }
            {
                const auto phase = clock.enter(Phase::kBackward, name_of(visit));
                const auto computing = store.computing();
                for (const std::size_t stage : std::views::reverse(visit.stages)) {
                    if (stage < first_trainable) continue;
                    const TapeEntry entry = std::exchange(tape[stage], {});
                    if (stages[stage].head != nullptr) {
                        const at::Tensor output = run_under_autograd(stage, entry.input, pass);
                        loss = output.detach();
                        grad = at::full({}, pass.batch.loss_scale, output.options());
                        grad = differentiate(stage, entry.input, output, grad);
                    } else if (grad.defined()) {
                        const at::Tensor output = stages[stage].checkpointed
                                                      ? run_under_autograd(stage, entry.input, pass)
                                                      : entry.output;
                        grad = differentiate(stage, entry.input, output, grad);
                    }
                }
            }
            end_visit(visit, leases);
            const auto phase = clock.enter(Phase::kReduce, name_of(visit));
            for (const std::int64_t unit : visit.reductions) store.reduce(unit);
        }
        return loss;
    }

    at::Tensor run_under_autograd(std::size_t index, const at::Tensor& x, const Pass& pass) {
        const at::AutoGradMode grad_mode(true);
        return run(index, x, pass);
    }

    /// Gradient with respect to the stage's input; those of parameters go to their sinks. Undefined
    /// where it is zero or nobody needs it.
    at::Tensor differentiate(std::size_t index, const at::Tensor& input, const at::Tensor& output,
                             const at::Tensor& grad_output) {
        const BoundStage& bound = stages[index];
        if (!output.requires_grad()) return {};  // it depends on nothing that could learn

        torch::autograd::variable_list inputs;
        for (const model::Parameter& parameter : bound.trainable) inputs.push_back(parameter.value);
        const bool wants_input = input.defined() && input.requires_grad();
        if (wants_input) inputs.push_back(input);
        const auto gradients = torch::autograd::grad({output}, inputs, {grad_output},
                                                     /*retain_graph=*/false, /*create_graph=*/false,
                                                     /*allow_unused=*/true);
        for (std::size_t i = 0; i < bound.trainable.size(); ++i) {
            if (gradients[i].defined()) model::store_gradient(bound.trainable[i], gradients[i]);
        }
        return wants_input ? gradients.back() : at::Tensor();
    }

    /// Returns the loss.
    at::Tensor run(const data::TokenBatch& batch, const MicroBatchId& id, double loss_factor,
                   double loss_scale, bool training) {
        Pass pass{micro_batch_of(batch, causal, device), id};
        pass.batch.loss_factor = loss_factor;
        pass.batch.loss_scale = loss_scale;
        pass.batch.training = training;
        const at::Tensor loss = forward(training ? schedule.forward : schedule.evaluation, pass);
        return loss.defined() ? loss : backward(pass);
    }

    std::vector<float> next_logits(const data::TokenBatch& batch,
                                   std::span<const std::int64_t> positions) {
        ensure(std::ssize(positions) == batch.batch, "each row of a batch has a position to read");
        std::vector<std::int64_t> rows;
        for (const std::int64_t position : positions) {
            ensure(position >= 0 && position < batch.sequence, "a position lies in its row");
            rows.push_back(std::ssize(rows) * batch.sequence + position);
        }
        Pass pass{micro_batch_of(batch, causal, device), {}};
        pass.batch.training = false;
        pass.wanted_rows = at::from_blob(rows.data(), {batch.batch}, at::kLong).to(device);
        const at::Tensor logits =
            forward(schedule.evaluation, pass).to(at::kCPU, at::kFloat).contiguous();
        const auto* values = logits.const_data_ptr<float>();
        return {values, values + logits.numel()};
    }
};

Engine::Engine(const model::Model& model, const shard::Layout& layout,
               const shard::Schedule& schedule, shard::UnitStore& store, PhaseClock& clock,
               const EngineOptions& options)
    : impl_(new Impl{schedule,
                     store,
                     clock,
                     options.seed,
                     model.causal(),
                     device_of(store.unsharded(0)),
                     options.gemm ? options.gemm : model::make_libtorch_gemm(options.threads),
                     {},
                     {},
                     0,
                     {},
                     {}}) {
    at::set_num_threads(options.threads);
    const std::vector<spec::StageSpec>& specs = model.spec().stages;
    ensure(layout.homes.size() == specs.size(), "the layout is the model's");
    for (std::size_t unit = 0; unit < layout.units.size(); ++unit) {
        ensure(store.unsharded(static_cast<std::int64_t>(unit)).dtype == options.compute,
               "the store shows parameters in the compute type");
    }
    std::vector<BoundStage>& stages = impl_->stages;
    const model::Computing computing(*impl_->gemm, options.device);
    std::int64_t blocks = 0;
    for (std::size_t i = 0; i < specs.size(); ++i) {
        stages.push_back(bind_stage(model, i, store, layout, computing, options.buffer));
        impl_->names.push_back(specs[i].name);
        if (specs[i].block && options.checkpoint_every_block > 0) {
            stages.back().checkpointed = ++blocks % options.checkpoint_every_block == 0;
        }
    }
    stages.back().head = dynamic_cast<model::HeadStage*>(stages.back().stage.get());
    ensure(stages.back().head != nullptr, "the last stage yields the loss");
    impl_->first_trainable = static_cast<std::size_t>(
        std::ranges::find_if(stages, [](const BoundStage& s) { return !s.trainable.empty(); }) -
        stages.begin());
    impl_->tape.resize(stages.size());
}

Engine::~Engine() = default;

std::string cpu_capability() {
    std::string name = at::get_cpu_capability();
    if (model::multiplies(at::kBFloat16)) name += " + bf16";
    if (model::multiplies(at::kHalf)) name += " + fp16";
    return name;
}

std::string torch_version() {
    return TORCH_VERSION;
}

void Engine::train(const data::TokenBatch& batch, const MicroBatchId& id, double loss_factor,
                   double loss_scale) {
    impl_->losses.push_back(impl_->run(batch, id, loss_factor, loss_scale, /*training=*/true));
}

std::vector<double> Engine::take_losses() {
    std::vector<double> values;
    for (const at::Tensor& loss : std::exchange(impl_->losses, {})) {
        values.push_back(loss.item<double>());
    }
    return values;
}

double Engine::evaluate(const data::TokenBatch& batch) {
    const auto phase = impl_->clock.enter(Phase::kEvaluation);
    return impl_->run(batch, {}, /*loss_factor=*/1.0, /*loss_scale=*/1.0, /*training=*/false)
        .item<double>();
}

std::vector<float> Engine::next_logits(const data::TokenBatch& batch,
                                       std::span<const std::int64_t> positions) {
    const auto phase = impl_->clock.enter(Phase::kEvaluation);
    return impl_->next_logits(batch, positions);
}

}  // namespace fullshard::train
