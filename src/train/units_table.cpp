#include "train/units_table.h"

#include "train/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

namespace fullshard::train {

namespace {

constexpr std::size_t kColumns = 9;
constexpr std::size_t kTextColumns = 2;  // aligned left; numbers follow
using Row = std::array<std::string, kColumns>;

using Units = std::span<const shard::Unit>;

std::string range_text(const std::string& first, const std::string& last, std::size_t count) {
    return count == 1 ? first : fmt::format("{} .. {} ({})", first, last, count);
}

std::string stages_text(const spec::ModelSpec& model, const Units& units) {
    std::size_t count = 0;
    for (const shard::Unit& unit : units) count += unit.stages().size();
    return range_text(model.stages[units.front().stages().front()].name,
                      model.stages[units.back().stages().back()].name, count);
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
    bool operator==(const Sizes&) const = default;
};

Sizes sizes_of(const shard::Unit& unit) {
    return {unit.numel(), trainable_numel(unit), unit.padded(), unit.shard_numel()};
}

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

/// The units as runs of neighbours that share a line, at most `most` of them.
std::vector<Units> runs_of(const Units& units, std::size_t most) {
    std::vector<Units> runs;
    for (std::size_t u = 0; u < units.size(); ++u) {
        const bool folds =
            units.size() > most && u > 0 && sizes_of(units[u]) == sizes_of(units[u - 1]);
        if (folds) {
            runs.back() = {runs.back().data(), runs.back().size() + 1};
        } else {
            runs.push_back(units.subspan(u, 1));
        }
    }
    if (runs.size() > most) {
        runs.resize(most);
        runs.back() = {runs.back().data(), units.data() + units.size()};
    }
    return runs;
}

/// The slots of units [first, first + count), in short.
std::string slots_text(const shard::SlotPlan& plan, std::size_t first, std::size_t count) {
    const auto slots = std::span(plan.slot_of_unit).subspan(first, count);
    const auto [least, most] = std::ranges::minmax(slots);
    return least == most ? std::to_string(least) : fmt::format("{}-{}", least, most);
}

}  // namespace

std::string units_table(const spec::ModelSpec& model, const shard::Layout& layout,
                        const shard::SlotPlan* slots, DType compute, std::size_t most_rows) {
    std::vector<Row> rows{{"unit", "stages", "elements", "trainable", "padding", "shard", "slot",
                           fmt::format("unsharded {}", name_of(compute)), "shard fp32"}};
    Sizes total;
    for (const shard::Unit& unit : layout.units) total += sizes_of(unit);
    const std::vector<Units> runs = runs_of(layout.units, most_rows);
    std::size_t first = 0;
    for (const Units& run : runs) {
        Sizes sizes = sizes_of(run.front());
        const bool of_each =
            std::ranges::all_of(run, [&](const auto& unit) { return sizes_of(unit) == sizes; });
        if (!of_each) {
            sizes = {};
            for (const shard::Unit& unit : run) sizes += sizes_of(unit);
        }
        std::string name = range_text(run.front().name(), run.back().name(), run.size());
        if (run.size() > 1) name += of_each ? ", each" : ", together";
        rows.push_back(make_row(std::move(name), stages_text(model, run), sizes,
                                slots == nullptr ? "-" : slots_text(*slots, first, run.size()),
                                compute));
        first += run.size();
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
