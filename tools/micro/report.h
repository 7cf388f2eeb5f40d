// The lines that a micro-benchmark prints.
#pragma once

#include "micro/program.h"
#include "micro/turns.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::micro {

/// What a contender is held against. Ratios are above 1 where the contender is better.
struct Limit {
    enum class Of : std::uint8_t {
        kSpeed,      ///< its seconds over the contender's: both do the same work
        kBandwidth,  ///< the contender's bytes per second over its own
    };
    Of of = Of::kSpeed;
    std::vector<std::string> names;   ///< the best of these in each round
    std::optional<double> goal = {};  ///< of the ratio
};

/// Prints, on rank 0, a table for people or one JSON object a line:
///   program, name, ranks, mib, rounds; value, lower, upper, unit: median and quartiles;
///   limit_name, limit (in the same unit), ratio, ratio_lower, ratio_upper, best_ratio, goal, where
///   there is one. A ratio is the median of the ratios of each round, whose turns were milliseconds
///   apart; best_ratio that of the fastest turns of both, which other processes disturbed least.
class Report {
  public:
    Report(std::string program, const comm::Group& world, const Options& options);

    void title(std::string_view text) const;
    /// Of one contender: GB/s where it has bytes and is held against a bandwidth, else ms.
    void line(const Turns& turns, std::string_view name, const Limit& limit) const;
    /// Without a limit: the rate where it has bytes, else the time.
    void line(const Turns& turns, std::string_view name) const;

  private:
    struct Row;
    void print(const Row& row) const;

    std::string program_;
    int ranks_;
    bool speaks_;
    Options options_;
};

}  // namespace fullshard::micro
