#include "train/training_rig.h"

#include "base/error.h"
#include "comm/mpi_stream_communicator.h"
#include "device/host_device.h"
#include "kernels/host_stream_kernels.h"
#include "model/simple_transformer.h"
#include "support/store_reading.h"
#include "train/assemble.h"
#include "train/gemm_choice.h"
#include "train/grad_norm.h"
#include "train/parameter_groups.h"
#include "train/update.h"

#include <optional>
#include <utility>

namespace fullshard::testing {

namespace {

config::Deck deck_of(const RigOptions& options) {
    config::Deck deck;
    deck.run.seed = options.seed;
    deck.train.grad_accum_steps = options.micro_batches;
    deck.train.activation_checkpointing = options.sharding.activation_checkpointing;
    deck.optimizer = options.optimizer;
    deck.precision = options.precision;
    deck.kernels.gemm = options.gemm;
    deck.shard = options.sharding.shard;
    deck.reduce = options.sharding.reduce;
    if (options.on_device) {
        deck.device.kind = config::Processor::kCuda;  // what plans and stores go by
        deck.reduce.order = config::ReduceOrder::kFast;
    }
    deck.fault = options.sharding.fault;
    deck.topology.ranks_per_node = options.sharding.ranks_per_node;
    deck.comm.node_shared = options.sharding.node_shared;
    deck.comm.progress_thread = options.sharding.progress_thread ? config::ProgressThread::kOn
                                                                 : config::ProgressThread::kOff;
    return deck;
}

std::unique_ptr<train::RunDevice> device_of(const RigOptions& options) {
    if (!options.on_device) return nullptr;
    return std::make_unique<train::RunDevice>(
        std::make_unique<device::HostDevice>(), std::make_unique<kernels::HostKernels>(),
        [](const comm::Group& world, const comm::Mesh& mesh, device::Device&,
           comm::Progress& progress) {
            return std::make_unique<comm::MpiStreamMesh>(world, mesh.shard_group, mesh.replicas,
                                                         progress);
        });
}

}  // namespace

Sharding unsharded() {
    return {.name = "unsharded", .shard = {.strategy = config::Strategy::kNoShard}};
}

Sharding full_shard(config::Store store) {
    return {.name = store == config::Store::kResident ? "resident" : "slotted",
            .shard = {.store = store}};
}

std::vector<Sharding> shardings(int ranks) {
    const Sharding slotted = full_shard(config::Store::kSlotted);
    std::vector<Sharding> list{unsharded(), full_shard(config::Store::kResident), slotted, slotted};
    list.back().name = "slotted without node sharing";
    list.back().node_shared = false;
    if (ranks == 4) {
        list.push_back(slotted);
        list.back().name = "slotted on 2x2 nodes";
        list.back().ranks_per_node = 2;
        list.push_back(full_shard(config::Store::kAuto));
        list.back().name = "hybrid on 2x2 nodes";
        list.back().shard.strategy = config::Strategy::kHybridShard;
        list.back().ranks_per_node = 2;
    }
    return list;
}

TrainingRig::TrainingRig(const comm::Group& ranks, const spec::SimpleTransformer& model,
                         const RigOptions& options)
    : TrainingRig(ranks, model::make_simple_transformer(model), options) {}

TrainingRig::TrainingRig(const comm::Group& ranks, std::shared_ptr<const model::Model> model,
                         const RigOptions& options)
    : deck_(deck_of(options)),
      sharded_(deck_, {.micro_batch = 1, .grad_accum_steps = options.micro_batches}, model,
               train::with_groups(model->spec(), deck_.optimizer),
               train::choose_gemm(deck_.kernels, {}, *model, ranks).gemm, ranks,
               device_of(options)),
      optimizer_(train::make_optimizer(
          train::adamw_of(deck_.optimizer), sharded_.layout(), sharded_.store(),
          [this](const spec::ParameterSpec& parameter) {
              return train::settings_of(parameter, deck_.optimizer);
          },
          sharded_.make_state())),
      judge_(deck_.train.on_nonfinite, train::loss_scaling_of(deck_.precision)) {}

TrainingRig::Step TrainingRig::accumulate(std::int64_t step, const Load& load,
                                          std::int64_t valid_targets) {
    loss_scale_ = judge_.loss_scale();
    const double loss_factor = 1.0 / static_cast<double>(valid_targets);
    for (std::int64_t a = 0; a < deck_.train.grad_accum_steps; ++a) {
        const std::int64_t g = data::micro_batch_index(a, world().rank(), world().size());
        engine().train(load(g), {step, g}, loss_factor, loss_scale_);
    }
    store().finish_reductions();
    const std::vector<double> mine = engine().take_losses();
    std::vector<double> all(mine.size() * static_cast<std::size_t>(world().size()));
    world().all_gather(mine, all);
    double loss = 0.0;
    for (std::size_t a = 0; a < mine.size(); ++a) {
        for (std::size_t rank = 0; rank < all.size() / mine.size(); ++rank) {
            loss += all[rank * mine.size() + a];
        }
    }
    const double norm =
        train::global_grad_norm(optimizer().device(), store(), layout(), gradient_group()) /
        loss_scale_;
    facts_ = {valid_targets, loss, norm};
    return {loss, norm, loss_scale_};
}

bool TrainingRig::update(double lr) {
    const train::StepDecision decision = judge_.decide(facts_);
    if (decision.action == train::StepDecision::Action::kAbort) throw RunError(decision.reason);
    if (decision.action == train::StepDecision::Action::kSkip) return false;
    const train::Clipping clipping{deck_.optimizer.clip_norm, deck_.optimizer.clip_value};
    train::update_parameters(store(), layout(), optimizer_, lr,
                             train::treatment_of(facts_.grad_norm, loss_scale_, clipping));
    return true;
}

train::Evaluation TrainingRig::evaluate(const data::ValidationLoader& loader) {
    const train::StopRequest nobody;
    train::StopController stop(nobody, config::Stop{}, std::nullopt);
    const std::vector<train::NamedValidation> parts{{"held out", loader, {}}};
    return train::Evaluator(engine(), parts, world()).evaluate(stop).value();
}

std::vector<std::vector<float>> TrainingRig::parameters() {
    return read_parameters(store(), layout(), gradient_group());
}

std::vector<std::vector<float>> TrainingRig::gradients() {
    return read_gradients(store(), layout(), gradient_group());
}

}  // namespace fullshard::testing
