// AdamW over the flat fp32 shards of all units.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fullshard::optim {

struct AdamWOptions {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0.01;  ///< decoupled; applies to ranges with `decay`
};

/// Elements [begin, end) of a shard with one decay class. What no range covers is padding.
struct ShardRange {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    bool decay = true;  ///< false for norms and biases

    friend bool operator==(const ShardRange&, const ShardRange&) = default;
};

/// This rank's shard of one unit: master parameters, fp32, and the ranges to update. The memory
/// belongs to the caller and outlives the optimizer. A rank without elements has an empty span.
struct OptimizerShard {
    std::span<float> param;
    std::vector<ShardRange> ranges;
};

/// Owns the moments of a list of shards and updates parameters unit by unit, as their reduced
/// gradients arrive:
///
///     optimizer.begin_step();
///     for (unit : any order) optimizer.step(unit, gradient(unit), lr);
///
/// The moments are allocated by the constructor; steps allocate nothing. Padding is neither read
/// nor written, in parameters, gradients and moments alike.
class AdamW {
  public:
    /// Throws LogicError where a range leaves its shard or overlaps another one.
    AdamW(const AdamWOptions& options, std::vector<OptimizerShard> shards);

    /// Starts the next optimizer step: one more in the bias corrections.
    void begin_step() { ++step_count_; }

    /// Goes on after `count` steps whose moments were put into `first_moment` and `second_moment`.
    void restore_step_count(std::int64_t count) { step_count_ = count; }

    /// Updates one unit's parameters and moments with the shard of its gradient, as long as the
    /// parameter shard. Each unit at most once a step (LogicError).
    void step(std::int64_t unit, std::span<const float> gradient, double lr);

    /// Optimizer steps begun so far.
    std::int64_t step_count() const { return step_count_; }
    std::int64_t unit_count() const { return static_cast<std::int64_t>(units_.size()); }

    /// Exponential averages of gradients and of their squares, indexed like the parameter shard.
    /// They start as zeros; elements of padding stay zero.
    std::span<float> first_moment(std::int64_t unit) { return units_.at(unit).first_moment; }
    std::span<float> second_moment(std::int64_t unit) { return units_.at(unit).second_moment; }

    /// Bytes of the moments of a shard of `elements`, for the memory plan.
    static constexpr std::int64_t state_bytes(std::int64_t elements) {
        return 2 * elements * static_cast<std::int64_t>(sizeof(float));
    }
    /// Bytes of all moments held here.
    std::int64_t state_bytes() const;

  private:
    struct Unit {
        std::span<float> param;
        std::vector<ShardRange> ranges;
        std::vector<float> first_moment;
        std::vector<float> second_moment;
        std::int64_t last_step = 0;
    };

    AdamWOptions options_;
    std::vector<Unit> units_;
    std::int64_t step_count_ = 0;
};

}  // namespace fullshard::optim
