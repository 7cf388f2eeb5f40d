// The explicit order in which a micro-batch visits the units, the same on every rank.
#pragma once

#include "shard/layout.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::shard {

/// What remains of an unsharded unit when a visit has used it.
enum class Reshard : std::uint8_t {
    kFully,    ///< the master shards
    kToGroup,  ///< shards over the smaller group that gathers it again (StoreOptions::regather)
    kKeep,     ///< all of it, until its next visit, or its next update
};

/// A unit that a visit needs unsharded.
struct UnitUse {
    std::int64_t unit = 0;
    Reshard after = Reshard::kFully;
};

/// Stages that are run together, on the units that their parameters lie in.
struct Visit {
    std::vector<std::size_t> stages;            ///< in order of execution, in backward visits too
    std::vector<UnitUse> uses;                  ///< unsharded while the stages run
    std::vector<std::int64_t> prefetch;         ///< units to start once `uses` are unsharded
    std::vector<std::int64_t> prefetch_after;   ///< units to start once `uses` are resharded
    std::vector<std::int64_t> first_gradients;  ///< backward: units whose gradients begin here
    std::vector<std::int64_t> reductions;       ///< backward: units whose gradients are complete
};

/// Training runs `forward`, then `backward`; evaluation runs `evaluation`.
struct Schedule {
    std::vector<Visit> forward;
    std::vector<Visit> backward;  ///< ends at the first trainable stage: nothing before it learns
    std::vector<Visit> evaluation;

    /// Equal on two ranks exactly when they will run the same visits of the same units.
    std::uint64_t hash(const Layout& layout) const;
    /// One line a visit, for people.
    std::string describe(const Layout& layout) const;
    /// Of each unit: whether several visits of a pass use it. It then stays unsharded from the
    /// first to the last of them, in a slot of its own, and its gradients likewise.
    std::vector<bool> shared_units(const Layout& layout) const;
};

/// Which unshards start early (the names are those of FSDP).
struct Prefetch {
    bool forward = true;  ///< during the visit before, in the forward pass
    enum class Backward : std::uint8_t {
        kOff,
        kPre,   ///< before the visit before computes: most overlap
        kPost,  ///< after it has computed and given up its units: less memory
    };
    Backward backward = Backward::kPre;
    std::int64_t ahead = 1;  ///< visits; limited by the slots of a size
};

/// What happens to units between their visits.
enum class Residency : std::uint8_t {
    kWhileUsed,     ///< gathered for each pass (ZeRO-3); the last segment's units once for both
    kSmallerGroup,  ///< gathered over all ranks after an update, then over a smaller group
    kUntilUpdate,   ///< gathered at the first visit after an update (ZeRO-2)
};

/// Every segment once forward, in order, and once backward, in reverse. The last one is needed
/// again at once and stays unsharded between its two visits.
Schedule make_schedule(const Layout& layout, Residency residency = Residency::kWhileUsed,
                       const Prefetch& prefetch = {});

}  // namespace fullshard::shard
