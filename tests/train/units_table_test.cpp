#include "train/units_table.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace fullshard::train {
namespace {

/// Two stages in the first unit, of which one parameter is frozen, and one in the second.
struct Example {
    static spec::ParameterSpec parameter(std::string name, std::int64_t numel, bool trainable) {
        spec::ParameterSpec spec;
        spec.name = std::move(name);
        spec.shape = {numel};
        spec.trainable = trainable;
        return spec;
    }
    spec::ModelSpec model{"toy",
                          {{"embedding", {parameter("a", 100, false)}},
                           {"layers.0", {parameter("b", 30, true)}},
                           {"head", {parameter("c", 7, true)}}}};
    shard::Layout layout = [] {
        shard::Layout result;
        result.shards = 2;
        result.units.emplace_back("first", std::vector<std::size_t>{0, 1},
                                  std::vector{parameter("a", 100, false), parameter("b", 30, true)},
                                  2);
        result.units.emplace_back("head", std::vector<std::size_t>{2},
                                  std::vector{parameter("c", 7, true)}, 2);
        return result;
    }();
};

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

TEST(UnitsTable, HasALineForEachUnitWithSlotsAndBytes) {
    const Example example;
    const std::int64_t padded = example.layout.units[0].padded();
    const std::int64_t head = example.layout.units[1].padded();
    const shard::SlotPlan slots{.slots = {{0, padded}, {padded, head}}, .slot_of_unit = {0, 1}};
    const auto lines =
        lines_of(units_table(example.model, example.layout, &slots, DType::kBFloat16));
    ASSERT_EQ(lines.size(), 5u);
    const auto words = [](const std::string& line) {
        std::istringstream stream(line);
        std::vector<std::string> list;
        for (std::string word; stream >> word;) list.push_back(word);
        return list;
    };
    using Words = std::vector<std::string>;
    EXPECT_EQ(words(lines[0]), (Words{"unit", "stages", "elements", "trainable", "padding", "shard",
                                      "slot", "unsharded", "bf16", "shard", "fp32"}));
    EXPECT_EQ(words(lines[1]),
              (Words{"first", "embedding", "..", "layers.0", "(2)", "130", "30",
                     std::to_string(padded - 130), std::to_string(padded / 2), "0",
                     std::to_string(2 * padded), "B", std::to_string(2 * padded), "B"}));
    EXPECT_EQ(words(lines[2]),
              (Words{"head", "head", "7", "7", std::to_string(head - 7), std::to_string(head / 2),
                     "1", std::to_string(2 * head), "B", std::to_string(2 * head), "B"}));
    EXPECT_EQ(words(lines[3])[0], "total");
    EXPECT_EQ(words(lines[3])[5], "137");
    EXPECT_EQ(words(lines[3])[6], "37");
    EXPECT_EQ(lines[4],
              "2 slots hold unsharded units: " + std::to_string(2 * (padded + head)) + " B");
    // Columns are aligned.
    for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(lines[i].size(), lines[0].size()) << lines[i];
}

TEST(UnitsTable, UnitsThatAreResidentHaveNoSlots) {
    const Example example;
    const auto lines =
        lines_of(units_table(example.model, example.layout, nullptr, DType::kFloat32));
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_NE(lines[1].find("  -  "), std::string::npos);
}

/// An embedding, `blocks` equal units and a head.
struct Stack {
    explicit Stack(std::size_t blocks) {
        layout.shards = 2;
        add("embedding", 50);
        for (std::size_t i = 0; i < blocks; ++i) add("layers." + std::to_string(i), 40);
        add("head", 60);
    }
    void add(const std::string& name, std::int64_t numel) {
        const auto parameter = Example::parameter(name + ".weight", numel, true);
        model.stages.push_back({name, {parameter}});
        layout.units.emplace_back(name, std::vector{model.stages.size() - 1},
                                  std::vector{parameter}, 2);
    }

    spec::ModelSpec model{"toy", {}};
    shard::Layout layout;
};

std::vector<std::string> words_of(const std::string& line) {
    std::istringstream stream(line);
    std::vector<std::string> list;
    for (std::string word; stream >> word;) list.push_back(word);
    return list;
}

TEST(UnitsTable, FoldsEqualNeighboursOfADeepModel) {
    const Stack stack(30);
    shard::SlotPlan slots{.slots = {{0, 40}, {40, 40}}, .slot_of_unit = {}};
    for (std::size_t u = 0; u < stack.layout.units.size(); ++u) slots.slot_of_unit.push_back(u % 2);
    const auto lines =
        lines_of(units_table(stack.model, stack.layout, &slots, DType::kFloat32, /*most_rows=*/8));
    ASSERT_EQ(lines.size(), 6u);
    using Words = std::vector<std::string>;
    const auto words = words_of(lines[2]);
    EXPECT_EQ((Words{words.begin(), words.begin() + 10}),
              (Words{"layers.0", "..", "layers.29", "(30),", "each", "layers.0", "..", "layers.29",
                     "(30)", "40"}));
    EXPECT_NE(lines[2].find(" 0-1 "), std::string::npos) << lines[2];
    EXPECT_EQ(words_of(lines[3])[0], "head");
    EXPECT_EQ(words_of(lines[4])[5],
              std::to_string(50 + 30 * 40 + 60));  // total 32 units, 2 shards
    // Few units keep a line each.
    EXPECT_EQ(
        lines_of(units_table(Stack(6).model, Stack(6).layout, nullptr, DType::kFloat32, 8)).size(),
        1u + 8 + 1);
}

TEST(UnitsTable, UnitsThatDoNotFoldShareTheLastLine) {
    Stack stack(0);
    for (int i = 0; i < 20; ++i) stack.add("extra." + std::to_string(i), 10 + i);
    const auto lines =
        lines_of(units_table(stack.model, stack.layout, nullptr, DType::kFloat32, /*most_rows=*/4));
    ASSERT_EQ(lines.size(), 6u);
    const auto words = words_of(lines[4]);
    EXPECT_EQ(words[0] + " " + words[2] + " " + words[4], "extra.1 extra.19 together");
    EXPECT_EQ(words[9], std::to_string(20 * 10 + 19 * 20 / 2 - 10));
}

}  // namespace
}  // namespace fullshard::train
