#include "train/toy_store.h"

#include "base/error.h"
#include "kernels/cast.h"

#include <algorithm>
#include <cstring>

namespace fullshard::train {

namespace {

/// All bits set are a NaN in every float type.
void poison(const TypedSpan& memory) {
    std::memset(memory.data, 0xFF, static_cast<std::size_t>(memory.bytes()));
}

}  // namespace

NamedValues initial_values(const model::Model& model, std::uint64_t seed) {
    NamedValues result;
    const auto& stages = model.spec().stages;
    for (std::size_t i = 0; i < stages.size(); ++i) {
        const auto own = model.initial_values(i, seed);
        for (std::size_t j = 0; j < stages[i].parameters.size(); ++j) {
            const spec::ParameterSpec& parameter = stages[i].parameters[j];
            std::vector<float>& values = result[parameter.name];
            if (parameter.init.kind == spec::InitRule::Kind::kModule) {
                values = own[j];
            } else {
                values.resize(static_cast<std::size_t>(parameter.numel()));
                spec::initialize(parameter, seed, 0, values);
            }
        }
    }
    return result;
}

ToyStore::ToyStore(const shard::Layout& layout, const NamedValues& values, DType compute,
                   DType sink)
    : layout_(layout) {
    for (const shard::Unit& unit : layout.units) {
        Held held{std::vector<float>(static_cast<std::size_t>(unit.padded())),
                  AlignedBuffer(unit.padded(), compute), AlignedBuffer(unit.padded(), sink),
                  AlignedBuffer(unit.padded()), shard::SlotGradSink(unit)};
        for (std::size_t i = 0; i < unit.parameters().size(); ++i) {
            std::ranges::copy(values.at(unit.parameters()[i].name),
                              held.master.begin() + unit.placement(i).offset);
        }
        poison(held.memory.typed());
        units_.push_back(std::move(held));
    }
}

void ToyStore::prefetch(std::int64_t unit) {
    ensure(at(unit).leases == 0, "a unit in use is not prefetched");
}

void ToyStore::acquire(std::int64_t unit) {
    Held& held = at(unit);
    if (held.leases++ > 0 || held.readable) return;
    kernels::narrow(held.master, held.memory.typed());
    held.readable = true;
    ++unshards_;
}

void ToyStore::release(const shard::UnitUse& use) {
    Held& held = at(use.unit);
    if (--held.leases > 0 || use.after == shard::Reshard::kKeep) return;
    poison(held.memory.typed());
    held.readable = false;
}

void ToyStore::begin_gradients(std::int64_t unit) {
    Held& held = at(unit);
    ensure(held.leases > 0, "gradients begin in a visit of their unit");
    poison(held.slot.typed());
    held.sink.begin(held.slot.typed());
    held.reduced = false;
}

void ToyStore::reduce(std::int64_t unit) {
    Held& held = at(unit);
    held.sink.seal(shard::zero);
    kernels::widen(held.slot.typed(), held.gradient.span());
    held.reduced = true;
}

TypedSpan ToyStore::gradient(std::int64_t unit) const {
    return units_[static_cast<std::size_t>(unit)].gradient.typed();
}

NamedValues ToyStore::gradients() const {
    NamedValues result;
    for (std::size_t u = 0; u < units_.size(); ++u) {
        const shard::Unit& unit = layout_.units[u];
        ensure(units_[u].reduced == unit.trainable(), "exactly what learns is reduced");
        for (std::size_t i = 0; i < unit.parameters().size(); ++i) {
            if (!unit.parameters()[i].trainable) continue;
            const auto first = units_[u].gradient.span().begin() + unit.placement(i).offset;
            result[unit.parameters()[i].name] = {first, first + unit.placement(i).numel};
        }
    }
    return result;
}

}  // namespace fullshard::train
