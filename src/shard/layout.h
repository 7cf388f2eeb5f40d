// From a model description to flat parameters and shards: pure arithmetic, no memory.
#pragma once

#include "spec/model_spec.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fullshard::shard {

/// Where a parameter lies in its unit's flat parameter, in elements.
struct Placement {
    std::int64_t offset = 0;
    std::int64_t numel = 0;
};

/// A piece of one parameter within one rank's shard, in elements.
struct ShardPiece {
    std::size_t parameter = 0;         ///< index in the unit
    std::int64_t parameter_begin = 0;  ///< first element of the piece within the parameter
    std::int64_t shard_begin = 0;      ///< where it starts within the shard
    std::int64_t count = 0;
};

/// The stages whose parameters are gathered together, flattened into one array: each parameter
/// starts at a 256-byte boundary, trainable ones before frozen ones, and the whole is padded to a
/// multiple of the number of shards. All shards of a unit have equal length; the last may be
/// padding only.
class Unit {
  public:
    Unit(std::string name, std::vector<std::size_t> stages,
         std::vector<spec::ParameterSpec> parameters, std::int64_t shards);

    const std::string& name() const { return name_; }
    const std::vector<std::size_t>& stages() const { return stages_; }
    /// In the order of the stages' descriptions; `placement(i)` belongs to `parameters()[i]`.
    const std::vector<spec::ParameterSpec>& parameters() const { return parameters_; }
    const Placement& placement(std::size_t parameter) const { return placements_[parameter]; }

    std::int64_t numel() const;                          ///< parameters without padding
    std::int64_t padded() const { return padded_; }      ///< length of the flat parameter
    std::int64_t shard_numel() const { return shard_; }  ///< length of each shard
    bool trainable() const;                              ///< any parameter is

    /// The pieces of parameters in elements [begin, begin + count) of the flat parameter, in order
    /// of their place; `shard_begin` counts from `begin`.
    std::vector<ShardPiece> pieces(std::int64_t begin, std::int64_t count) const;

  private:
    std::string name_;
    std::vector<std::size_t> stages_;
    std::vector<spec::ParameterSpec> parameters_;
    std::vector<Placement> placements_;
    std::int64_t padded_ = 0;
    std::int64_t shard_ = 0;
};

/// Units of a model for a number of shards.
struct Layout {
    std::int64_t shards = 1;
    std::vector<Unit> units;

    std::int64_t numel() const;
    std::int64_t padded() const;
};

/// Wrap policy `block`: each stage is a unit.
Layout make_block_layout(const spec::ModelSpec& model, std::int64_t shards);

/// Memory that holds one unsharded unit at a time. A unit always uses the same slot, so that views
/// of it stay valid; units of equal length share `slots_per_class` slots in turn.
struct SlotPlan {
    struct Slot {
        std::int64_t offset = 0;  ///< elements from the start of all slots
        std::int64_t numel = 0;
    };
    std::vector<Slot> slots;
    std::vector<std::size_t> slot_of_unit;

    std::int64_t numel() const;  ///< all slots together
    const Slot& slot(std::size_t unit) const { return slots[slot_of_unit[unit]]; }
};

SlotPlan make_slot_plan(const Layout& layout, std::int64_t slots_per_class);

}  // namespace fullshard::shard
