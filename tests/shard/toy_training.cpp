#include "shard/toy_training.h"

#include "shard/initialize.h"
#include "support/store_reading.h"

#include <cmath>
#include <span>

namespace fullshard::testing {

namespace {

constexpr std::uint64_t kSeed = 5;
constexpr float kRate = 0.01F;
constexpr std::string_view kNeverWritten = "b.1.unused";

spec::ParameterSpec parameter(std::string name, std::vector<std::int64_t> shape,
                              bool trainable = true) {
    spec::ParameterSpec p;
    p.name = std::move(name);
    p.shape = std::move(shape);
    p.init = {spec::InitRule::Kind::kUniform, 1.0};
    p.trainable = trainable;
    return p;
}

/// Depends on everything that could be mixed up. Magnitudes differ widely between micro-batches, so
/// that another order of summation gives other bits.
float gradient(float value, std::int64_t step, std::int64_t g, std::uint64_t name,
               std::int64_t element) {
    const float scale = std::ldexp(1.0F, static_cast<int>((g * 3 + step) % 11) - 5);
    return scale * (value + 0.01F * static_cast<float>(name % 13) +
                    0.001F * static_cast<float>(element % 97));
}

bool learns(const spec::ParameterSpec& p) {
    return p.trainable && p.name != kNeverWritten;
}

float tree(std::span<const float> leaves) {
    if (leaves.size() == 1) return leaves[0];
    std::size_t left = 1;
    while (left * 2 < leaves.size()) left *= 2;
    return tree(leaves.first(left)) + tree(leaves.subspan(left));
}

}  // namespace

ToyWorld make_toy_world(const comm::Group& ranks, int ranks_per_node, bool node_shared) {
    ToyWorld world{comm::find_topology(ranks, ranks_per_node), {}};
    world.lanes = comm::make_lanes(world.topology, node_shared);
    return world;
}

spec::ModelSpec toy_model() {
    spec::ModelSpec model{"toy", {}};
    model.stages.push_back({"first", {parameter("a.weight", {37, 11}), parameter("a.bias", {37})}});
    for (int i = 0; i < 5; ++i) {
        const std::string name = "b." + std::to_string(i);
        model.stages.push_back({name,
                                {parameter(name + ".weight", {13, 17}),
                                 parameter(name + ".frozen", {9}, /*trainable=*/false),
                                 parameter(name + ".unused", {21})}});
    }
    model.stages.push_back({"last", {parameter("c", {3})}});
    return model;
}

void run_toy_training(shard::UnitStore& store, const shard::Layout& layout,
                      const comm::Group& world, std::int64_t steps, std::int64_t micro_batches) {
    const shard::Schedule schedule = shard::make_schedule(layout);
    const auto visit_unit = [&](const shard::Visit& visit, auto&& body) {
        shard::Lease lease = store.unshard(visit.unit);
        if (visit.prefetch != shard::Visit::kNone) store.prefetch(visit.prefetch);
        body(static_cast<std::size_t>(visit.unit));
    };
    for (std::int64_t step = 0; step < steps; ++step) {
        for (std::int64_t a = 0; a < micro_batches; ++a) {
            const std::int64_t g = a * world.size() + world.rank();
            for (const auto& visit : schedule.forward) visit_unit(visit, [](std::size_t) {});
            for (const auto& visit : schedule.backward) {
                visit_unit(visit, [&](std::size_t u) {
                    const shard::Unit& unit = layout.units[u];
                    store.begin_gradients(visit.unit);
                    GradSink& sink = store.grad_sink(visit.unit);
                    for (std::size_t p = 0; p < unit.parameters().size(); ++p) {
                        const spec::ParameterSpec& spec = unit.parameters()[p];
                        if (!learns(spec)) continue;
                        const float* values =
                            store.unsharded(visit.unit).data() + unit.placement(p).offset;
                        auto* out = reinterpret_cast<float*>(
                            sink.open(static_cast<std::int64_t>(p)).memory.data);
                        for (std::int64_t e = 0; e < spec.numel(); ++e) {
                            out[e] = gradient(values[e], step, g, spec.name.size() + u, e);
                        }
                    }
                });
                store.reduce(visit.unit);
            }
        }
        store.finish_reductions();
        for (std::size_t u = 0; u < layout.units.size(); ++u) {
            const auto index = static_cast<std::int64_t>(u);
            store.begin_update(index);
            const std::span<float> master = store.master(index);
            const std::span<const float> sum = store.gradient(index);
            for (std::size_t e = 0; e < master.size(); ++e) master[e] -= kRate * sum[e];
            store.publish(index);
        }
    }
}

std::vector<float> train_toy(const ToyWorld& world, shard::StoreKind kind, std::int64_t steps,
                             std::int64_t micro_batches, const shard::Faults& faults) {
    const std::int64_t shards =
        kind == shard::StoreKind::kPrivate ? 1 : world.topology.world.size();
    const shard::Layout layout = shard::make_block_layout(toy_model(), shards);
    const auto store = shard::make_store(kind, layout, world.topology.world, world.lanes,
                                         {.micro_batches = micro_batches, .faults = faults});
    shard::initialize_parameters(*store, layout, kSeed);
    run_toy_training(*store, layout, world.topology.world, steps, micro_batches);
    auto parameters = joined(read_parameters(*store, layout));
    world.topology.world.barrier();  // nobody frees the arena while others still read
    return parameters;
}

std::vector<float> train_toy_serially(std::int64_t steps, std::int64_t micro_batches_of_all_ranks) {
    std::vector<float> all;
    const spec::ModelSpec model = toy_model();
    for (std::size_t u = 0; u < model.stages.size(); ++u) {
        for (const spec::ParameterSpec& p : model.stages[u].parameters) {
            std::vector<float> values(static_cast<std::size_t>(p.numel()));
            spec::initialize(p, kSeed, 0, values);
            for (std::int64_t step = 0; step < steps && learns(p); ++step) {
                for (std::size_t e = 0; e < values.size(); ++e) {
                    std::vector<float> leaves;
                    for (std::int64_t g = 0; g < micro_batches_of_all_ranks; ++g) {
                        leaves.push_back(gradient(values[e], step, g, p.name.size() + u,
                                                  static_cast<std::int64_t>(e)));
                    }
                    values[e] -= kRate * tree(leaves);
                }
            }
            all.insert(all.end(), values.begin(), values.end());
        }
    }
    return all;
}

}  // namespace fullshard::testing
