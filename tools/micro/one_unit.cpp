#include "micro/one_unit.h"

#include "base/error.h"
#include "spec/parameters.h"

#include <fmt/format.h>

#include <algorithm>

namespace fullshard::micro {

namespace {

/// Small integers: sums are exact in every order.
float parameter_value(std::int64_t element, std::int64_t salt) {
    return static_cast<float>((element + 11 * salt) % 1009);
}
float gradient_value(std::int64_t element, std::int64_t rank, std::int64_t salt) {
    return static_cast<float>((element + 7 * rank + 13 * salt) % 61);
}

}  // namespace

OneUnit::OneUnit(const comm::Group& world, const Kind& kind, std::int64_t numel)
    : topology_(comm::find_topology(world, kind.ranks_per_node)), gradient_(numel) {
    const shard::Strategy& strategy = shard::find_strategy(kind.strategy);
    const std::int64_t group = shard::group_size(strategy, 0, topology_);
    mesh_ = comm::make_mesh(topology_, static_cast<int>(group), /*node_shared=*/true);
    const spec::ModelSpec model{
        "one unit", {{"unit", {spec::matrix("weight", 1, numel, spec::constant(0.0))}}}};
    layout_ = shard::make_layout(model, group);
    options_.residency = strategy.residency();
    schedule_ = shard::make_schedule(layout_, options_.residency);
    store_ = shard::make_store(shard::choose_store(strategy, kind.store, place()), layout_,
                               schedule_, mesh_, options_);
    const std::span<float> values = gradient_.span();
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = gradient_value(static_cast<std::int64_t>(i), world.rank(), salt_);
    }
}

OneUnit::~OneUnit() {
    if (std::uncaught_exceptions() == 0) topology_.world.barrier();
}

void OneUnit::gather() {
    store_->begin_update(0);
    store_->publish(0);
    const shard::Lease lease = store_->unshard({.unit = 0});
}

void OneUnit::check_gather() {
    ++salt_;
    store_->begin_update(0);
    std::int64_t element = store_->owned_begin(0);
    for (float& value : store_->master(0).as<float>()) value = parameter_value(element++, salt_);
    store_->publish(0);
    const shard::Lease lease = store_->unshard({.unit = 0});
    const std::span<const float> all = store_->unsharded(0).as<float>();
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i] != parameter_value(static_cast<std::int64_t>(i), salt_))
            throw RunError(fmt::format("{}: element {} was not gathered", describe(), i));
    }
}

void OneUnit::write_gradient() {
    store_->begin_gradients(0);
    const TypedSpan memory = store_->grad_sink(0).open(0).memory;
    std::ranges::copy(gradient_.span(), memory.as<float>().begin());
}

void OneUnit::reduce() {
    store_->reduce(0);
    store_->finish_reductions();
}

void OneUnit::check_reduce() {
    ++salt_;
    const comm::Group& world = topology_.world;
    const std::span<float> values = gradient_.span();
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = gradient_value(static_cast<std::int64_t>(i), world.rank(), salt_);
    }
    write_gradient();
    reduce();
    const std::span<const float> sum = store_->gradient(0).as<const float>();
    for (std::size_t i = 0; i < sum.size(); ++i) {
        const std::int64_t element = store_->owned_begin(0) + static_cast<std::int64_t>(i);
        float expected = 0;
        for (int rank = 0; rank < world.size() && element < std::ssize(values); ++rank) {
            expected += gradient_value(element, rank, salt_);
        }
        if (sum[i] != expected)
            throw RunError(fmt::format("{}: element {} of the sum is {}, not {}", describe(),
                                       element, sum[i], expected));
    }
}

}  // namespace fullshard::micro
