#include "train/units_table.h"

#include "train/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

namespace fullshard::train {

namespace {

constexpr std::size_t kColumns = 9;
constexpr std::size_t kTextColumns = 2;  // aligned left; numbers follow
using Row = std::array<std::string, kColumns>;

std::string stages_text(const spec::ModelSpec& model, const shard::Unit& unit) {
    const auto& stages = unit.stages();
    const std::string& first = model.stages[stages.front()].name;
    if (stages.size() == 1) return first;
    return fmt::format("{} .. {} ({})", first, model.stages[stages.back()].name, stages.size());
}

std::int64_t trainable_numel(const shard::Unit& unit) {
    std::int64_t sum = 0;
    for (const spec::ParameterSpec& parameter : unit.parameters()) {
        if (parameter.trainable) sum += parameter.numel();
    }
    return sum;
}

/// The numbers of a unit, or of all.
struct Sizes {
    std::int64_t numel = 0;
    std::int64_t trainable = 0;
    std::int64_t padded = 0;
    std::int64_t shard = 0;

    Sizes& operator+=(const Sizes& other) {
        numel += other.numel;
        trainable += other.trainable;
        padded += other.padded;
        shard += other.shard;
        return *this;
    }
};

Row make_row(std::string name, std::string stages, const Sizes& sizes, std::string slot,
             DType compute) {
    return {std::move(name),
            std::move(stages),
            std::to_string(sizes.numel),
            std::to_string(sizes.trainable),
            std::to_string(sizes.padded - sizes.numel),
            std::to_string(sizes.shard),
            std::move(slot),
            bytes_text(sizes.padded * size_of(compute)),
            bytes_text(sizes.shard * size_of(DType::kFloat32))};
}

std::string aligned(const std::vector<Row>& rows) {
    std::array<std::size_t, kColumns> widths{};
    for (const Row& row : rows) {
        for (std::size_t c = 0; c < kColumns; ++c) widths[c] = std::max(widths[c], row[c].size());
    }
    std::string text;
    for (const Row& row : rows) {
        std::string line;
        for (std::size_t c = 0; c < kColumns; ++c) {
            if (c > 0) line += "  ";
            line += c < kTextColumns ? fmt::format("{:<{}}", row[c], widths[c])
                                     : fmt::format("{:>{}}", row[c], widths[c]);
        }
        text += line + '\n';
    }
    return text;
}

}  // namespace

std::string units_table(const spec::ModelSpec& model, const shard::Layout& layout,
                        const shard::SlotPlan* slots, DType compute) {
    std::vector<Row> rows{{"unit", "stages", "elements", "trainable", "padding", "shard", "slot",
                           fmt::format("unsharded {}", name_of(compute)), "shard fp32"}};
    Sizes total;
    for (std::size_t u = 0; u < layout.units.size(); ++u) {
        const shard::Unit& unit = layout.units[u];
        const Sizes sizes{unit.numel(), trainable_numel(unit), unit.padded(), unit.shard_numel()};
        total += sizes;
        rows.push_back(make_row(unit.name(), stages_text(model, unit), sizes,
                                slots == nullptr ? "-" : std::to_string(slots->slot_of_unit[u]),
                                compute));
    }
    rows.push_back(make_row("total",
                            fmt::format("{} units, {} shards", layout.units.size(), layout.shards),
                            total, "", compute));
    std::string text = aligned(rows);
    if (slots != nullptr) {
        text += fmt::format("{} slots hold unsharded units: {}\n", slots->slots.size(),
                            bytes_text(slots->numel() * size_of(compute)));
    }
    return text;
}

}  // namespace fullshard::train
