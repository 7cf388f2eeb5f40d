// Test-only delays and poison, in one place so that real code paths stay unconditional.
#pragma once

#include "base/rng.h"
#include "shard/unit_store.h"

#include <cstdint>
#include <span>

namespace fullshard::shard {

class Disturbance {
  public:
    Disturbance(const Faults& faults, int rank)
        : faults_(faults), stream_(mix(faults.seed, static_cast<std::uint64_t>(rank))) {}

    bool poisons() const { return faults_.poison; }
    /// Sleeps a random time, different on each rank, if delays are on.
    void delay();
    /// Fills memory that must not be read before it is written with NaN, if poison is on.
    void poison(const TypedSpan& memory) const;

  private:
    Faults faults_;
    RandomStream stream_;
    std::uint64_t delays_ = 0;
};

}  // namespace fullshard::shard
