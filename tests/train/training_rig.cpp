#include "train/training_rig.h"

#include "shard/initialize.h"
#include "support/store_reading.h"
#include "train/assemble.h"
#include "train/grad_norm.h"

namespace fullshard::testing {

std::vector<Sharding> shardings(int ranks) {
    using shard::StoreKind;
    std::vector<Sharding> list{{"private", StoreKind::kPrivate},
                               {"resident", StoreKind::kResident},
                               {"slotted", StoreKind::kSlotted},
                               {"slotted without node sharing", StoreKind::kSlotted, 0, false}};
    if (ranks == 4) list.push_back({"slotted on 2x2 nodes", StoreKind::kSlotted, 2});
    return list;
}

TrainingRig::TrainingRig(const comm::Group& ranks, const spec::SimpleTransformer& model,
                         const Sharding& sharding, std::int64_t micro_batches, std::uint64_t seed,
                         const optim::AdamWOptions& options)
    : topology_(comm::find_topology(ranks, sharding.ranks_per_node)),
      micro_batches_(micro_batches) {
    const bool sharded = sharding.kind != shard::StoreKind::kPrivate;
    gradient_group_ = sharded ? topology_.world : comm::Group::self(ranks.timeout_s());
    layout_ = shard::make_block_layout(spec::describe(model), sharded ? ranks.size() : 1);
    schedule_ = shard::make_schedule(layout_);
    store_ = shard::make_store(sharding.kind, layout_, topology_.world,
                               comm::make_lanes(topology_, sharding.node_shared),
                               {.micro_batches = micro_batches, .faults = sharding.faults});
    shard::initialize_parameters(*store_, layout_, seed);
    optimizer_ = std::make_unique<optim::AdamW>(train::make_optimizer(options, layout_, *store_));
    engine_ = std::make_unique<train::Engine>(model, layout_, schedule_, *store_, clock_, seed,
                                              /*threads=*/1);
}

// Nobody takes the arena away while another rank still reads it.
TrainingRig::~TrainingRig() {
    topology_.world.barrier();
}

TrainingRig::Step TrainingRig::accumulate(std::int64_t step, const Load& load,
                                          std::int64_t valid_targets) {
    std::vector<double> mine;
    for (std::int64_t a = 0; a < micro_batches_; ++a) {
        const std::int64_t g = data::micro_batch_index(a, world().rank(), world().size());
        mine.push_back(
            engine_->train(load(g), {step, g}, 1.0 / static_cast<double>(valid_targets)));
    }
    store_->finish_reductions();
    std::vector<double> all(mine.size() * static_cast<std::size_t>(world().size()));
    world().all_gather(mine, all);
    double loss = 0.0;
    for (std::size_t a = 0; a < mine.size(); ++a) {
        for (std::size_t rank = 0; rank < all.size() / mine.size(); ++rank) {
            loss += all[rank * mine.size() + a];
        }
    }
    return {loss, train::global_grad_norm(*store_, layout_, gradient_group_)};
}

void TrainingRig::update(double lr) {
    optimizer_->begin_step();
    for (std::int64_t unit = 0; unit < static_cast<std::int64_t>(layout_.units.size()); ++unit) {
        store_->begin_update(unit);
        optimizer_->step(unit, store_->gradient(unit), lr);
        store_->publish(unit);
    }
}

std::vector<std::vector<float>> TrainingRig::parameters() {
    return read_parameters(*store_, layout_);
}

std::vector<std::vector<float>> TrainingRig::gradients() {
    return read_gradients(*store_, layout_, world());
}

}  // namespace fullshard::testing
