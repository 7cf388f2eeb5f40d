// A store of one rank for tests of the engine: it checks the order of calls, and what is not leased
// or not yet written is NaN.
#pragma once

#include "base/aligned_buffer.h"
#include "model/model.h"
#include "shard/slot_grad_sink.h"
#include "shard/unit_store.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fullshard::train {

/// Values of parameters, or gradients, by full name.
using NamedValues = std::map<std::string, std::vector<float>>;

/// What Model and ModelSpec say the parameters start with.
NamedValues initial_values(const model::Model& model, std::uint64_t seed);

class ToyStore final : public shard::UnitStore {
  public:
    ToyStore(const shard::Layout& layout, const NamedValues& values, DType compute, DType sink);

    TypedSpan unsharded(std::int64_t unit) override { return at(unit).memory.typed(); }
    void prefetch(std::int64_t unit) override;
    GradSink& grad_sink(std::int64_t unit) override { return at(unit).sink; }
    void begin_gradients(std::int64_t unit) override;
    void reduce(std::int64_t unit) override;
    void finish_reductions() override {}

    std::int64_t owned_begin(std::int64_t) const override { return 0; }
    TypedSpan gradient(std::int64_t unit) const override;
    TypedSpan master(std::int64_t unit) override { return std::span(at(unit).master); }
    void begin_update(std::int64_t) override {}
    void publish(std::int64_t) override {}

    std::vector<shard::Allocation> allocations() const override { return {}; }
    shard::Traffic traffic() const override { return {}; }
    std::string describe() const override { return "toy"; }

    /// Gradients of the last micro-batch; a frozen parameter has none.
    NamedValues gradients() const;
    /// Times a unit became readable.
    std::int64_t unshards() const { return unshards_; }

  protected:
    void acquire(std::int64_t unit) override;
    void release(const shard::UnitUse& use) override;

  private:
    struct Held {
        std::vector<float> master;
        AlignedBuffer memory;
        AlignedBuffer slot;
        AlignedBuffer gradient;
        shard::SlotGradSink sink;
        int leases = 0;
        bool readable = false;
        bool reduced = false;
    };

    Held& at(std::int64_t unit) { return units_[static_cast<std::size_t>(unit)]; }

    const shard::Layout& layout_;
    std::vector<Held> units_;
    std::int64_t unshards_ = 0;
};

}  // namespace fullshard::train
