#include "shard/initialize.h"

#include "base/error.h"

#include <algorithm>

namespace fullshard::shard {

namespace {

bool from_module(const spec::ParameterSpec& parameter) {
    return parameter.init.kind == spec::InitRule::Kind::kModule;
}

/// Copies what this rank owns of a stage's module values. A unit's parameters lie in the order of
/// its stages, so those from `first` on are the stage's own.
class ModuleInitializer {
  public:
    ModuleInitializer(const Unit& unit, std::span<float> master,
                      const std::vector<ShardPiece>& pieces)
        : unit_(unit), master_(master), pieces_(pieces) {}

    void set_stage(const std::vector<ParameterHome>& homes, std::size_t unit_index,
                   const std::vector<std::vector<float>>& values) {
        ensure(values.size() == homes.size(), "a stage has values for each of its parameters");
        for (std::size_t p = 0; p < homes.size(); ++p) {
            if (homes[p] != ParameterHome{unit_index, next_}) continue;  // tied to an earlier one
            if (from_module(unit_.parameters()[next_])) set_parameter(next_, values[p]);
            ++next_;
        }
    }

  private:
    void set_parameter(std::size_t parameter, const std::vector<float>& values) {
        ensure(static_cast<std::int64_t>(values.size()) == unit_.parameters()[parameter].numel(),
               "a module's initial value has the parameter's size");
        for (const ShardPiece& piece : pieces_) {
            if (piece.parameter != parameter) continue;
            std::copy_n(values.begin() + piece.parameter_begin, piece.count,
                        master_.begin() + piece.shard_begin);
        }
    }

    const Unit& unit_;
    std::span<float> master_;
    const std::vector<ShardPiece>& pieces_;
    std::size_t next_ = 0;
};

}  // namespace

void initialize_parameters(UnitStore& store, const Layout& layout, std::uint64_t seed,
                           const ModuleValues& module_values) {
    for (std::size_t i = 0; i < layout.units.size(); ++i) {
        const auto index = static_cast<std::int64_t>(i);
        const Unit& unit = layout.units[i];
        std::vector<float> values(static_cast<std::size_t>(store.master(index).count));
        const std::vector<ShardPiece> pieces =
            unit.pieces(store.owned_begin(index), std::ssize(values));
        for (const ShardPiece& piece : pieces) {
            const spec::ParameterSpec& parameter = unit.parameters()[piece.parameter];
            if (from_module(parameter)) continue;
            spec::initialize(parameter, seed, piece.parameter_begin,
                             std::span(values).subspan(static_cast<std::size_t>(piece.shard_begin),
                                                       static_cast<std::size_t>(piece.count)));
        }
        if (std::ranges::any_of(unit.parameters(), from_module)) {
            ModuleInitializer initializer(unit, values, pieces);
            for (const std::size_t stage : unit.stages()) {
                initializer.set_stage(layout.homes[stage], i, module_values(stage));
            }
        }
        store.begin_update(index);
        store.set_master(index, values);
        store.publish(index);
    }
}

}  // namespace fullshard::shard
