#include "shard/initialize.h"

#include <algorithm>

namespace fullshard::shard {

void initialize_parameters(UnitStore& store, const Layout& layout, std::uint64_t seed) {
    for (std::size_t i = 0; i < layout.units.size(); ++i) {
        const auto index = static_cast<std::int64_t>(i);
        const Unit& unit = layout.units[i];
        store.begin_update(index);
        const std::span<float> master = store.master(index);
        std::ranges::fill(master, 0.0F);
        for (const ShardPiece& piece :
             unit.pieces(store.owned_begin(index), static_cast<std::int64_t>(master.size()))) {
            spec::initialize(unit.parameters()[piece.parameter], seed, piece.parameter_begin,
                             master.subspan(static_cast<std::size_t>(piece.shard_begin),
                                            static_cast<std::size_t>(piece.count)));
        }
        store.publish(index);
    }
}

}  // namespace fullshard::shard
