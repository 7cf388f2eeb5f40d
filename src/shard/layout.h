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

/// Where a parameter of a stage lives: a tied one lies in the unit of the parameter that it is tied
/// to.
struct ParameterHome {
    std::size_t unit = 0;
    std::size_t parameter = 0;  ///< index in the unit

    friend bool operator==(const ParameterHome&, const ParameterHome&) = default;
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
    /// The stages' own parameters, without tied ones, in the order of the stages' descriptions;
    /// `placement(i)` belongs to `parameters()[i]`.
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

/// How stages are grouped into units (the names are those of FSDP's auto-wrap policies).
enum class WrapPolicy : std::uint8_t {
    kModel,  ///< the whole model is one unit
    kBlock,  ///< each stage is one
    kSize,   ///< consecutive stages until a unit has `min_num_params` elements
};
struct Wrap {
    WrapPolicy policy = WrapPolicy::kBlock;
    std::int64_t min_num_params = 0;
};

/// Units of a model for a number of shards.
struct Layout {
    std::int64_t shards = 1;
    std::vector<Unit> units;
    /// Stages that are run together, in order: one unit's each, or stages without a parameter of
    /// their own.
    std::vector<std::vector<std::size_t>> segments;
    std::vector<std::vector<ParameterHome>> homes;  ///< by stage, then by parameter of its spec

    std::int64_t numel() const;
    std::int64_t padded() const;
    /// Units that a stage's parameters lie in, ascending.
    std::vector<std::int64_t> units_of_segment(std::size_t segment) const;
    /// Elements of the largest shard that has gradients.
    std::int64_t largest_trainable_shard() const;
};

/// Throws LogicError for a parameter that is tied to none of an earlier stage, or to one of another
/// shape.
Layout make_layout(const spec::ModelSpec& model, std::int64_t shards, const Wrap& wrap = {});

/// Memory that holds one unsharded unit at a time. A unit always uses the same slot, so that views
/// of it stay valid; units of equal length share `slots_per_class` slots in turn, except those
/// which need one of their own.
struct SlotPlan {
    struct Slot {
        std::int64_t offset = 0;  ///< elements from the start of all slots
        std::int64_t numel = 0;
    };
    static constexpr std::size_t kNoSlot = static_cast<std::size_t>(-1);
    std::vector<Slot> slots;
    std::vector<std::size_t> slot_of_unit;  ///< kNoSlot for a unit that needs none

    std::int64_t numel() const;  ///< all slots together
    const Slot& slot(std::size_t unit) const { return slots[slot_of_unit[unit]]; }
};

enum class SlotNeed : std::uint8_t { kNone, kShared, kOwn };

/// `needs` is by unit.
SlotPlan make_slot_plan(const Layout& layout, std::int64_t slots_per_class,
                        const std::vector<SlotNeed>& needs);

}  // namespace fullshard::shard
