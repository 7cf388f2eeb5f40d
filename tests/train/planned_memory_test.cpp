#include "train/planned_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fullshard::train {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

void expect_part(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), text.npos) << text;
}

TEST(PlannedMemory, CopiesForSavesAreOnTheHostOfEachRank) {
    const ShardingPlan::MemorySums plan{.rank = 20, .node_shared = 5, .node = 85};
    const PlannedMemory on_host = planned_memory(plan, 3, /*most_ranks=*/4, /*on_device=*/false);
    EXPECT_EQ(on_host.device, 0);
    EXPECT_EQ(on_host.host.rank, 23);
    EXPECT_EQ(on_host.host.node_shared, 5);
    EXPECT_EQ(on_host.host.node, 97);
    const PlannedMemory on_device = planned_memory(plan, 3, /*most_ranks=*/4, /*on_device=*/true);
    EXPECT_EQ(on_device.device, 20);
    EXPECT_EQ(on_device.host.rank, 3);
    EXPECT_EQ(on_device.host.node_shared, 0);
    EXPECT_EQ(on_device.host.node, 12);
}

TEST(PlannedMemory, TextNamesWhatThePlanTakesAndWhatThereIs) {
    const PlannedMemory planned{.host = {.rank = 2 * kGiB, .node_shared = kGiB, .node = 5 * kGiB}};
    EXPECT_EQ(
        memory_text(planned, {.node = {.total = 64 * kGiB, .available = 60 * kGiB}}),
        "memory planned: 2.0 GiB a rank and 1.0 GiB that ranks share, 5.0 GiB a node, which "
        "has 64.0 GiB (60.0 GiB available by now); activations and libraries come on top");
}

TEST(PlannedMemory, TextOfADeviceComparesWithTheDevice) {
    const PresentMemory present{.node = {.total = 64 * kGiB},
                                .device = device::MemoryInfo{80 * kGiB, 79 * kGiB}};
    EXPECT_EQ(
        memory_text({.host = {}, .device = 3 * kGiB}, present),
        "memory planned: 3.0 GiB on the device of a rank, which has 80.0 GiB (79.0 GiB free "
        "by now); activations and libraries come on top");
    expect_part(memory_text({.host = {.node = 6 * kGiB}, .device = 3 * kGiB}, present),
                ", 6.0 GiB a node for copies of checkpoints;");
}

TEST(PlannedMemory, WarnsOfWhatIsShort) {
    const NodeMemory node{.total = 10 * kGiB};
    EXPECT_TRUE(memory_warnings({.host = {.node = 9 * kGiB}}, {node}).empty());
    const auto of_node = memory_warnings({.host = {.node = 9 * kGiB + 10}}, {node});
    ASSERT_EQ(of_node.size(), 1);
    expect_part(of_node[0], "on a node that has 10.0 GiB: use more nodes, a strategy");
    // What a device holds need not fit on its host.
    const PresentMemory with_device{node, device::MemoryInfo{80 * kGiB, 1}};
    EXPECT_TRUE(memory_warnings({.host = {}, .device = 70 * kGiB}, with_device).empty());
    const auto of_both =
        memory_warnings({.host = {.node = 11 * kGiB}, .device = 73 * kGiB}, with_device);
    ASSERT_EQ(of_both.size(), 2);
    expect_part(of_both[0], "on a device that has 80.0 GiB: use more ranks");
    expect_part(of_both[1], "set checkpoint.async = off");
    // Where the kernel does not tell, there is nothing to compare with.
    EXPECT_TRUE(memory_warnings({.host = {.node = 11 * kGiB}}, {}).empty());
}

}  // namespace
}  // namespace fullshard::train
