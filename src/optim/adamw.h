// AdamW over the flat fp32 shards of all units.
#pragma once

#include "base/span.h"
#include "optim/state_device.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

namespace fullshard::optim {

/// What differs from parameter to parameter.
struct ParameterSettings {
    double lr_factor = 1;     ///< multiplies the step's learning rate
    double weight_decay = 0;  ///< decoupled: the parameter shrinks by lr * lr_factor * weight_decay

    friend bool operator==(const ParameterSettings&, const ParameterSettings&) = default;
};

struct AdamWOptions {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay =
        0.01;  ///< of the decay class, for default_settings(): steps follow ranges

    /// The settings of a parameter that no group of its own changes. Norms and biases do not decay.
    constexpr ParameterSettings default_settings(bool decay) const {
        return {1, decay ? weight_decay : 0};
    }
};

/// Elements [begin, end) of a shard with equal settings. What no range covers is not trained:
/// padding, and frozen parameters.
struct ShardRange {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    ParameterSettings settings;

    friend bool operator==(const ShardRange&, const ShardRange&) = default;
};

/// What is done to gradients on their way into the moments: multiplied by `factor` (clip
/// coefficient over loss scale), then clamped to [-clip_value, clip_value]. The default changes no
/// bit.
struct GradientTreatment {
    double factor = 1;
    double clip_value = std::numeric_limits<double>::infinity();
};

/// This rank's shard of one unit: master parameters, fp32, and the ranges to update. The memory
/// belongs to the caller and outlives the optimizer. A rank without elements has an empty span.
struct OptimizerShard {
    TypedSpan param;
    std::vector<ShardRange> ranges;
    /// Receives the new parameters in the same pass, rounded to its type. Empty: nothing does. What
    /// no range covers is not copied.
    TypedSpan copy = {};
};

/// Somebody who reads parameters and moments while training goes on, such as a checkpoint that is
/// being saved.
class StateReader {
  public:
    virtual ~StateReader() = default;
    /// Returns when the unit's parameters and moments may change.
    virtual void finish_reading(std::int64_t unit) = 0;
};

/// Owns the moments of a list of shards and updates parameters unit by unit, as their reduced
/// gradients arrive:
///
///     optimizer.begin_step();
///     for (unit : any order) optimizer.step(unit, gradient(unit), lr);
///
/// The moments are allocated by the constructor; steps allocate nothing. What no range covers is
/// neither read nor written, in parameters, gradients and moments alike. Moments end where the last
/// range ends: trainable parameters come first in a unit, so frozen ones behind them cost nothing.
class AdamW {
  public:
    /// Throws LogicError where a range leaves its shard or overlaps another one.
    AdamW(const AdamWOptions& options, std::vector<OptimizerShard> shards,
          std::unique_ptr<StateDevice> device = std::make_unique<HostState>());

    /// Starts the next optimizer step: one more in the bias corrections.
    void begin_step() { ++step_count_; }

    /// Goes on after `count` steps whose moments were put into `first_moment` and `second_moment`.
    void restore_step_count(std::int64_t count) { step_count_ = count; }

    /// Updates one unit's parameters and moments with the shard of its gradient, as long as the
    /// parameter shard, at the learning rate `lr` times the factor of each range. Each unit at most
    /// once a step (LogicError). Readers are waited for.
    void step(std::int64_t unit, const TypedSpan& gradient, double lr,
              const GradientTreatment& treatment = {});

    /// From now on until it is removed, steps wait for this reader. It outlives its time here.
    void add_reader(StateReader& reader) { readers_.push_back(&reader); }
    void remove_reader(StateReader& reader) { std::erase(readers_, &reader); }

    /// Where the moments are, and the shards.
    StateDevice& device() { return *device_; }

    /// Optimizer steps begun so far.
    std::int64_t step_count() const { return step_count_; }
    std::int64_t unit_count() const { return static_cast<std::int64_t>(units_.size()); }

    /// Exponential averages of gradients and of their squares, fp32, indexed like the parameter
    /// shard, up to the end of its last range (empty without ranges). They start as zeros; elements
    /// that no range covers stay zero.
    TypedSpan first_moment(std::int64_t unit) const { return units_.at(unit).first_moment; }
    TypedSpan second_moment(std::int64_t unit) const { return units_.at(unit).second_moment; }

    /// Bytes of moments of `elements` elements, for the memory plan.
    static constexpr std::int64_t state_bytes(std::int64_t elements) {
        return 2 * elements * static_cast<std::int64_t>(sizeof(float));
    }
    /// Bytes of all moments held here.
    std::int64_t state_bytes() const;

  private:
    struct Unit {
        OptimizerShard shard;
        TypedSpan first_moment;
        TypedSpan second_moment;
        std::int64_t last_step = 0;
    };

    AdamWOptions options_;
    std::unique_ptr<StateDevice> device_;
    std::vector<Unit> units_;
    std::int64_t step_count_ = 0;
    std::vector<StateReader*> readers_;
};

}  // namespace fullshard::optim
