// The explicit order in which a micro-batch visits the units, the same on every rank.
#pragma once

#include "shard/layout.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fullshard::shard {

/// One use of a unit in a pass.
struct Visit {
    static constexpr std::int64_t kNone = -1;

    std::int64_t unit = 0;
    std::int64_t prefetch = kNone;  ///< unit whose unshard starts once this one is unsharded
};

/// Training runs `forward`, then `backward`; evaluation runs `forward` only.
struct Schedule {
    std::vector<Visit> forward;
    std::vector<Visit> backward;  ///< ends at the first trainable unit: nothing before it learns

    /// Times a training micro-batch unshards `unit`.
    std::int64_t unshards(std::int64_t unit) const;
    /// Equal on two ranks exactly when they will run the same visits of the same units.
    std::uint64_t hash(const Layout& layout) const;
    /// One line a visit, for people.
    std::string describe(const Layout& layout) const;
};

/// Every unit once forward, in order, and once backward, in reverse; each visit prefetches the
/// next.
Schedule make_schedule(const Layout& layout);

}  // namespace fullshard::shard
