// Contenders that take turns: the only fair comparison on a machine whose speed drifts.
#pragma once

#include "comm/group.h"

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::micro {

/// Something to time. All calls are made by every rank at the same time.
struct Contender {
    std::string name;
    double bytes = 0;           ///< that one call reads and writes, over all ranks together
    std::function<void()> run;  ///< what is timed
    std::function<void()> prepare = {};  ///< before each turn, not timed
    /// Before the first and after the last turn, not timed: does the work on values of its own and
    /// throws if the result is wrong.
    std::function<void()> check = {};
    std::function<void()> finish = {};  ///< after each turn, not timed
    int calls = 1;                      ///< of `run` in a turn, where one is too short for a clock
};

/// Median and quartiles.
struct Spread {
    double median = 0;
    double lower = 0;
    double upper = 0;
};
Spread spread_of(std::vector<double> values);

/// Seconds of all turns.
class Turns {
  public:
    /// Runs every contender once in each round, in a new random order, the same on all ranks. A
    /// turn lasts from the first rank's begin to the last one's end. All ranks are on one host
    /// (else UsageError). Collective.
    Turns(const comm::Group& world, std::span<const Contender> contenders, int rounds);

    const Contender& find(std::string_view name) const;
    /// Of one call, by round.
    const std::vector<double>& seconds(std::string_view name) const;

  private:
    std::size_t index_of(std::string_view name) const;
    std::vector<Contender> contenders_;
    std::vector<std::vector<double>> seconds_;  ///< by contender
};

}  // namespace fullshard::micro
