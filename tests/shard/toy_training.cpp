#include "shard/toy_training.h"

#include "kernels/cast.h"
#include "shard/initialize.h"
#include "support/store_reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <map>
#include <ranges>
#include <span>
#include <thread>

namespace fullshard::testing {

namespace {

constexpr std::uint64_t kSeed = 5;
constexpr float kRate = 0.01F;
constexpr auto kVisit = std::chrono::microseconds(100);

spec::ParameterSpec parameter(std::string name, std::vector<std::int64_t> shape,
                              bool trainable = true) {
    spec::ParameterSpec p;
    p.name = std::move(name);
    p.shape = std::move(shape);
    p.init = {spec::InitRule::Kind::kUniform, 1.0};
    p.trainable = trainable;
    return p;
}

spec::ParameterSpec tied(std::string name, const spec::ParameterSpec& other) {
    spec::ParameterSpec p = other;
    p.name = std::move(name);
    p.tied_to = other.name;
    return p;
}

/// Depends on everything that could be mixed up. Magnitudes differ widely between micro-batches, so
/// that another order of summation gives other bits.
float gradient(float value, std::int64_t step, std::int64_t g, std::size_t stage,
               std::int64_t element) {
    const float scale = std::ldexp(1.0F, static_cast<int>((g * 3 + step) % 11) - 5);
    return scale * (value + 0.01F * static_cast<float>(stage % 13) +
                    0.001F * static_cast<float>(element % 97));
}

bool never_written(const spec::ParameterSpec& p) {
    return p.name == "b.1.unused";
}

float rounded(float value, DType dtype) {
    if (dtype == DType::kFloat32) return value;
    std::uint64_t memory = 0;
    TypedSpan half;
    half.data = reinterpret_cast<std::byte*>(&memory);
    half.count = 1;
    half.dtype = dtype;
    kernels::narrow(std::span<const float>(&value, 1), half);
    kernels::widen(half, std::span(&value, 1));
    return value;
}

float read_element(const TypedSpan& memory, std::int64_t element) {
    float value = 0.0F;
    kernels::widen(memory.part(element, 1), std::span(&value, 1));
    return value;
}

void write_element(const TypedSpan& memory, std::int64_t element, float value) {
    kernels::narrow(std::span<const float>(&value, 1), memory.part(element, 1));
}

/// Every leaf and every addition rounded.
float tree(std::span<const float> leaves, DType dtype) {
    if (leaves.size() == 1) return rounded(leaves[0], dtype);
    std::size_t left = 1;
    while (left * 2 < leaves.size()) left *= 2;
    return rounded(tree(leaves.first(left), dtype) + tree(leaves.subspan(left), dtype), dtype);
}

shard::Residency residency_of(const shard::Strategy& strategy, const ToySharding& sharding) {
    if (sharding.regather_ranks > 0) return shard::Residency::kSmallerGroup;
    return sharding.reshard_after_forward ? strategy.residency() : shard::Residency::kUntilUpdate;
}

}  // namespace

std::string ToySharding::describe() const {
    return fmt::format(
        "{} group {} store {} ranks a node {}{} wrap {} prefetch {}{} slots {}{} regather {} {} {} "
        "order {} accumulation {}{}{}",
        strategy, group_size, static_cast<int>(store), ranks_per_node,
        node_shared ? "" : " unshared", static_cast<int>(wrap.policy), prefetch.forward,
        static_cast<int>(prefetch.backward), slots, reshard_after_forward ? "" : " kept",
        regather_ranks, name_of(compute), name_of(reduce), static_cast<int>(order),
        static_cast<int>(accumulation), progress_thread ? " thread" : "",
        faults.poison ? " poison" : "");
}

spec::ModelSpec toy_model() {
    spec::ModelSpec model{"toy", {}};
    model.stages.push_back(
        {"first",
         {parameter("a.weight", {37, 11}), parameter("a.bias", {37}), parameter("a.scale", {})}});
    model.stages.push_back({"frozen", {parameter("f", {50}, /*trainable=*/false)}});
    for (int i = 0; i < 5; ++i) {
        const std::string name = "b." + std::to_string(i);
        model.stages.push_back({name,
                                {parameter(name + ".weight", {13, 17}),
                                 parameter(name + ".frozen", {9}, /*trainable=*/false),
                                 parameter(name + ".unused", {21})}});
    }
    spec::StageSpec again{"again", {}};
    for (const auto& p : model.stages[4].parameters)
        again.parameters.push_back(tied("2" + p.name, p));
    model.stages.push_back(std::move(again));
    model.stages.push_back(
        {"last", {parameter("c", {3}), tied("last.weight", model.stages[0].parameters[0])}});
    return model;
}

ToyTraining::ToyTraining(const comm::Group& ranks, const ToySharding& sharding,
                         std::int64_t micro_batches, const spec::ModelSpec& model,
                         ToyMachine machine)
    : machine_(std::move(machine)), topology_(comm::find_topology(ranks, sharding.ranks_per_node)) {
    const shard::Strategy& strategy = shard::find_strategy(sharding.strategy);
    const std::int64_t group = shard::group_size(strategy, sharding.group_size, topology_);
    mesh_ = comm::make_mesh(topology_, static_cast<int>(group), sharding.node_shared);
    layout_ = shard::make_layout(model, group, sharding.wrap);
    options_ = {.compute = sharding.compute,
                .reduce = sharding.reduce,
                .residency = residency_of(strategy, sharding),
                .regather_ranks = sharding.regather_ranks,
                .parameter_slots = sharding.slots,
                .gradient_slots = sharding.slots,
                .whole_gradients = strategy.gradients == shard::Holding::kReplicated,
                .micro_batches = micro_batches,
                .order = sharding.order,
                .accumulation = sharding.accumulation,
                .progress_thread = sharding.progress_thread,
                .faults = sharding.faults};
    schedule_ = shard::make_schedule(layout_, options_.residency, sharding.prefetch);
    if (machine_.make_store) {
        kind_ = shard::StoreKind::kDevice;
        store_ = machine_.make_store(layout_, schedule_, mesh_, options_);
    } else {
        kind_ = shard::choose_store(strategy, sharding.store, place());
        store_ = shard::make_store(kind_, layout_, schedule_, mesh_, options_);
    }
    shard::initialize_parameters(*store_, layout_, kSeed, {});
}

ToyTraining::~ToyTraining() {
    topology_.world.barrier();
}

void ToyTraining::run_micro_batch(std::int64_t step, std::int64_t g) {
    const auto visit_units = [&](const shard::Visit& visit, auto&& body) {
        {
            std::deque<shard::Lease> leases;
            for (const auto& use : visit.uses) leases.push_back(store_->unshard(use));
            for (const std::int64_t unit : visit.prefetch) store_->prefetch(unit);
            body();
        }
        for (const std::int64_t unit : visit.prefetch_after) store_->prefetch(unit);
    };
    const auto backward = [&](const shard::Visit& visit) {
        Work work;
        for (const std::size_t stage : std::views::reverse(visit.stages)) {
            for (const shard::ParameterHome& home : layout_.homes[stage]) {
                const shard::Unit& unit = layout_.units[home.unit];
                const spec::ParameterSpec& spec = unit.parameters()[home.parameter];
                if (!spec.trainable || never_written(spec)) continue;
                const auto index = static_cast<std::int64_t>(home.unit);
                work.reads.push_back(store_->unsharded(index).part(
                    unit.placement(home.parameter).offset, spec.numel()));
                const GradSink::Target target =
                    store_->grad_sink(index).open(static_cast<std::int64_t>(home.parameter));
                work.writes.push_back(target.memory);
                work.parts.push_back({stage, target.accumulate});
            }
        }
        return work;
    };
    for (const auto& visit : schedule_.forward) {
        visit_units(visit, [&] {
            Work work;
            for (const auto& use : visit.uses) work.reads.push_back(store_->unsharded(use.unit));
            compute(work, "forward", [] {});
        });
    }
    for (const auto& visit : schedule_.backward) {
        visit_units(visit, [&] {
            for (const std::int64_t unit : visit.first_gradients) store_->begin_gradients(unit);
            const Work work = backward(visit);
            compute(work, "backward", [work, step, g] {
                for (std::size_t i = 0; i < work.parts.size(); ++i) {
                    work.write_gradient(i, step, g);
                }
            });
        });
        for (const std::int64_t unit : visit.reductions) store_->reduce(unit);
    }
}

void ToyTraining::compute(const Work& work, const char* name, const std::function<void()>& body) {
    const auto computing = store_->computing();
    machine_.compute({.name = name, .reads = work.reads, .writes = work.writes}, body);
    if (options_.progress_thread) std::this_thread::sleep_for(kVisit);
}

void ToyTraining::Work::write_gradient(std::size_t part, std::int64_t step, std::int64_t g) const {
    const auto [stage, accumulate] = parts[part];
    for (std::int64_t e = 0; e < reads[part].count; ++e) {
        float sum = gradient(read_element(reads[part], e), step, g, stage, e);
        if (accumulate) sum += read_element(writes[part], e);
        write_element(writes[part], e, sum);
    }
}

void ToyTraining::update(std::int64_t unit) {
    const TypedSpan master = store_->master(unit), sum = store_->gradient(unit);
    const TypedSpan copy = store_->updated_copy(unit);
    Work work{.reads = {sum}, .writes = {master}};
    if (copy.count > 0) work.writes.push_back(copy);
    compute(work, "update", [master, sum, copy] {
        for (std::int64_t e = 0; e < master.count; ++e) {
            master.as<float>()[static_cast<std::size_t>(e)] -=
                kRate * sum.as<float>()[static_cast<std::size_t>(e)];
        }
        if (copy.count > 0) kernels::narrow(master.as<float>(), copy);
    });
}

void ToyTraining::run(std::int64_t first, std::int64_t count) {
    const comm::Group& world = topology_.world;
    for (std::int64_t step = first; step < first + count; ++step) {
        for (std::int64_t a = 0; a < options_.micro_batches; ++a) {
            run_micro_batch(step, a * world.size() + world.rank());
        }
        store_->finish_reductions();
        for (std::size_t u = 0; u < layout_.units.size(); ++u) {
            if (!layout_.units[u].trainable()) continue;
            const auto index = static_cast<std::int64_t>(u);
            store_->begin_update(index);
            update(index);
            store_->publish(index);
        }
    }
}

void ToyTraining::evaluate(std::int64_t passes) {
    for (std::int64_t pass = 0; pass < passes; ++pass) {
        for (const auto& visit : schedule_.evaluation) {
            std::deque<shard::Lease> leases;
            for (const auto& use : visit.uses) leases.push_back(store_->unshard(use));
            for (const std::int64_t unit : visit.prefetch) store_->prefetch(unit);
        }
    }
}

std::vector<float> ToyTraining::parameters() {
    for (std::size_t u = 0; u < layout_.units.size(); ++u) {
        machine_.before_reading(store_->master(static_cast<std::int64_t>(u)));
    }
    return joined(read_parameters(*store_, layout_, mesh_.shard_group));
}

std::vector<float> train_toy(const comm::Group& ranks, const ToySharding& sharding,
                             std::int64_t steps, std::int64_t micro_batches,
                             const spec::ModelSpec& model) {
    ToyTraining training(ranks, sharding, micro_batches, model);
    training.run(0, steps);
    return training.parameters();
}

std::vector<float> train_toy_serially(std::int64_t steps, std::int64_t ranks,
                                      std::int64_t micro_batches, DType compute, DType reduce,
                                      const spec::ModelSpec& model) {
    // Stages that use a parameter, in the order of a backward pass.
    std::map<std::string, std::vector<std::size_t>> uses;
    for (std::size_t s = model.stages.size(); s-- > 0;) {
        for (const auto& p : model.stages[s].parameters) {
            uses[p.tied_to.empty() ? p.name : p.tied_to].push_back(s);
        }
    }
    const auto leaf = [&](float value, const std::vector<std::size_t>& stages, std::int64_t step,
                          std::int64_t g, std::int64_t element) {
        float sum = 0.0F;
        for (std::size_t i = 0; i < stages.size(); ++i) {
            const float part = gradient(rounded(value, compute), step, g, stages[i], element);
            sum = rounded(i == 0 ? part : part + sum, compute);
        }
        return sum;
    };
    std::vector<float> all;
    for (const spec::StageSpec& stage : model.stages) {
        for (const spec::ParameterSpec& p : stage.parameters) {
            if (!p.tied_to.empty()) continue;
            std::vector<float> values(static_cast<std::size_t>(p.numel()));
            spec::initialize(p, kSeed, 0, values);
            for (std::int64_t step = 0; step < steps && p.trainable && !never_written(p); ++step) {
                for (std::size_t e = 0; e < values.size(); ++e) {
                    std::vector<float> micro_batch_sums;
                    for (std::int64_t a = 0; a < micro_batches; ++a) {
                        std::vector<float> leaves;
                        for (std::int64_t r = 0; r < ranks; ++r) {
                            leaves.push_back(leaf(values[e], uses[p.name], step, a * ranks + r,
                                                  static_cast<std::int64_t>(e)));
                        }
                        micro_batch_sums.push_back(tree(leaves, reduce));
                    }
                    values[e] -= kRate * tree(micro_batch_sums, DType::kFloat32);
                }
            }
            all.insert(all.end(), values.begin(), values.end());
        }
    }
    return all;
}

}  // namespace fullshard::testing
