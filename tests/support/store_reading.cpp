#include "support/store_reading.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace fullshard::testing {

namespace {

void append_parameters(const shard::Unit& unit, std::span<const float> flat,
                       std::vector<std::vector<float>>& list) {
    for (std::size_t p = 0; p < unit.parameters().size(); ++p) {
        const auto& place = unit.placement(p);
        const auto values = flat.subspan(static_cast<std::size_t>(place.offset),
                                         static_cast<std::size_t>(place.numel));
        list.emplace_back(values.begin(), values.end());
    }
}

}  // namespace

std::vector<std::vector<float>> gather_owned(std::span<const std::span<const float>> owned,
                                             const shard::Layout& layout,
                                             const comm::Group& shard_group) {
    std::vector<std::vector<float>> all;
    for (std::size_t i = 0; i < layout.units.size(); ++i) {
        std::vector<double> part(static_cast<std::size_t>(layout.units[i].shard_numel()));
        std::ranges::copy(owned[i], part.begin());
        std::vector<double> parts(part.size() * static_cast<std::size_t>(shard_group.size()));
        shard_group.all_gather(part, parts);
        append_parameters(layout.units[i], std::vector<float>(parts.begin(), parts.end()), all);
    }
    return all;
}

std::vector<std::vector<float>> read_parameters(shard::UnitStore& store,
                                                const shard::Layout& layout,
                                                const comm::Group& shard_group) {
    std::vector<std::span<const float>> owned;
    for (std::size_t i = 0; i < layout.units.size(); ++i) {
        owned.push_back(store.master(static_cast<std::int64_t>(i)).as<float>());
    }
    return gather_owned(owned, layout, shard_group);
}

std::vector<std::vector<float>> read_gradients(const shard::UnitStore& store,
                                               const shard::Layout& layout,
                                               const comm::Group& shard_group) {
    std::vector<std::span<const float>> owned;
    for (std::size_t i = 0; i < layout.units.size(); ++i) {
        owned.push_back(store.gradient(static_cast<std::int64_t>(i)).as<float>());
    }
    return gather_owned(owned, layout, shard_group);
}

std::vector<float> joined(const std::vector<std::vector<float>>& parameters) {
    std::vector<float> all;
    for (const auto& values : parameters) all.insert(all.end(), values.begin(), values.end());
    return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace fullshard::testing
