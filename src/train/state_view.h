// Parameters and moments of this rank as memory of the host.
#pragma once

#include "optim/adamw.h"
#include "shard/layout.h"
#include "shard/unit_store.h"

#include <cstdint>
#include <span>
#include <vector>

namespace fullshard::train {

/// The state itself where it lies on the host; else copies, as old as the last `refresh`.
class StateView {
  public:
    /// All of it outlives the view.
    StateView(const shard::Layout& layout, shard::UnitStore& store, optim::AdamW& optimizer);

    /// Of the owned range of a unit; moments as AdamW has them.
    std::span<float> master(std::int64_t unit);
    std::span<float> first_moment(std::int64_t unit);
    std::span<float> second_moment(std::int64_t unit);

    /// Copies the state as it is. No effect where there are no copies.
    void refresh();
    /// Replaces the state by the copies, between `begin_update` and `publish` of all units. No
    /// effect where there are none.
    void put_back();

    /// Whether the state may change without it.
    bool is_copy() const { return !copies_.empty(); }

  private:
    struct Copy {
        std::vector<float> master, first_moment, second_moment;
    };
    Copy& copy(std::int64_t unit) { return copies_.at(static_cast<std::size_t>(unit)); }

    shard::UnitStore& store_;
    optim::AdamW& optimizer_;
    std::vector<Copy> copies_;  ///< by unit; empty where the state is on the host
};

}  // namespace fullshard::train
