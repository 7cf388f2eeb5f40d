#include "comm/mpi_stream_communicator.h"

#include "base/error.h"
#include "comm/topology.h"
#include "device/checked_device.h"
#include "device/host_device.h"
#include "kernels/half_float.h"
#include "support/mpi_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fullshard::comm {
namespace {

using fullshard::testing::world;

/// What `rank` contributes at `index`: sums of these depend on the order of summation.
float contribution(int rank, std::int64_t index) {
    return std::ldexp(1.0F + 0.1F * static_cast<float>(rank),
                      (rank * 7 + static_cast<int>(index)) % 20);
}

/// Sums along the balanced tree over ranks, as a reference of its own.
float tree(int first, int count, std::int64_t index) {
    if (count == 1) return contribution(first, index);
    int left = 1;
    while (left * 2 < count) left *= 2;
    return tree(first, left, index) + tree(first + left, count - left, index);
}

/// On a host device (seed 0) and on the checked one, whose seed is equal on all ranks or not: the
/// ranks then run their operations in different orders.
class MpiStream : public ::testing::TestWithParam<int> {
  protected:
    MpiStream() {
        const auto seed = static_cast<std::uint64_t>(GetParam());
        if (seed == 0) {
            device_ = std::make_unique<device::HostDevice>();
        } else {
            const int own = GetParam() % 2 == 0 ? world().rank() : 0;
            device_ = std::make_unique<device::CheckedDevice>(seed + 100 * std::uint64_t(own));
        }
        mesh_ = std::make_unique<MpiStreamMesh>(world(), mesh_groups_.shard_group,
                                                mesh_groups_.replicas, progress_);
        gather_ = device_->make_stream("gather");
        reduce_ = device_->make_stream("reduce");
        event_ = device_->make_event();
    }
    ~MpiStream() override { world().barrier(); }

    /// The host's values in memory of the device, put there before anything is enqueued.
    TypedSpan to_device(const std::vector<float>& values) {
        buffers_.push_back(device_->allocate("values", std::ssize(values) * 4));
        const TypedSpan span = buffers_.back().typed(DType::kFloat32);
        device_->host_access({.name = "host writes", .writes = {&span, 1}});
        std::ranges::copy(values, span.as<float>().begin());
        return span;
    }
    std::span<const float> on_host(const TypedSpan& span) {
        device_->host_access({.name = "host reads", .reads = {&span, 1}});
        return span.as<float>();
    }
    void wait(device::Stream& stream) {
        stream.record(*event_);
        mesh_->wait(*device_, *event_);
    }
    static std::vector<float> contributions(int rank, std::int64_t count) {
        std::vector<float> values(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i) {
            values[static_cast<std::size_t>(i)] = contribution(rank, i);
        }
        return values;
    }
    int rank() const { return world().rank(); }
    int size() const { return world().size(); }

    Progress progress_;
    Mesh mesh_groups_ = make_mesh(find_topology(world(), 0), world().size(), /*node_shared=*/false);
    std::unique_ptr<device::Device> device_;
    std::vector<device::Buffer> buffers_;
    std::unique_ptr<MpiStreamMesh> mesh_;
    std::unique_ptr<device::Stream> gather_;
    std::unique_ptr<device::Stream> reduce_;
    std::unique_ptr<device::Event> event_;
};

INSTANTIATE_TEST_SUITE_P(Seeds, MpiStream, ::testing::Range(0, 9));

TEST_P(MpiStream, AllGatherInPlace) {
    for (const std::int64_t block : {0, 1, 7, 1000}) {
        std::vector<float> mine(static_cast<std::size_t>(block * size()), NAN);
        std::ranges::copy(contributions(rank(), block), mine.begin() + rank() * block);
        const TypedSpan span = to_device(mine);
        mesh_->shard_group().all_gather(adjacent_blocks(span, size()), *gather_);
        wait(*gather_);
        const auto values = on_host(span);
        for (std::int64_t i = 0; i < block * size(); ++i) {
            ASSERT_EQ(values[static_cast<std::size_t>(i)],
                      contribution(static_cast<int>(i / block), i % block));
        }
    }
}

TEST_P(MpiStream, SumsHaveTheBitsOfTheTree) {
    for (const std::int64_t count : {0, 1, 2, 3, 5, 1001}) {
        const TypedSpan blocks = to_device(contributions(rank(), count * size()));
        const TypedSpan apart = to_device(std::vector<float>(static_cast<std::size_t>(count)));
        const TypedSpan in_place = to_device(contributions(rank(), count * size()));
        const TypedSpan whole = to_device(contributions(rank(), count));
        auto& group = mesh_->shard_group();
        group.reduce_scatter(adjacent_blocks(blocks, size()), apart, *reduce_);
        group.reduce_scatter(adjacent_blocks(in_place, size()),
                             in_place.part(rank() * count, count), *reduce_);
        group.all_reduce(whole, *reduce_);
        wait(*reduce_);
        const auto a = on_host(apart);
        const auto b = on_host(in_place.part(rank() * count, count));
        const auto c = on_host(whole);
        for (std::int64_t i = 0; i < count; ++i) {
            const auto at = static_cast<std::size_t>(i);
            ASSERT_EQ(a[at], tree(0, size(), rank() * count + i));
            ASSERT_EQ(b[at], a[at]);
            ASSERT_EQ(c[at], tree(0, size(), i));
        }
    }
}

TEST_P(MpiStream, BroadcastFromEveryRootInTheOrderOfTheCalls) {
    std::vector<TypedSpan> spans;
    for (int root = 0; root < size(); ++root) {
        spans.push_back(to_device(contributions(rank(), 9)));
        mesh_->shard_group().broadcast(spans.back(), root, root % 2 == 0 ? *gather_ : *reduce_);
    }
    wait(*gather_);
    wait(*reduce_);
    for (int root = 0; root < size(); ++root) {
        const auto values = on_host(spans[static_cast<std::size_t>(root)]);
        for (std::size_t i = 0; i < values.size(); ++i) {
            ASSERT_EQ(values[i], contribution(root, static_cast<std::int64_t>(i)));
        }
    }
}

// Gathers on one stream and sums on the other, which nothing orders: each rank may run them in an
// order of its own.
TEST_P(MpiStream, StreamsMayRunAheadOfEachOther) {
    constexpr int kCalls = 20;
    constexpr std::int64_t kBlock = 5;
    std::vector<TypedSpan> gathered, summed;
    for (int call = 0; call < kCalls; ++call) {
        gathered.push_back(to_device(contributions(rank(), kBlock * size())));
        summed.push_back(to_device(contributions(rank(), kBlock)));
    }
    for (std::size_t call = 0; call < kCalls; ++call) {
        mesh_->shard_group().all_gather(adjacent_blocks(gathered[call], size()), *gather_);
        mesh_->shard_group().all_reduce(summed[call], *reduce_);
        mesh_->replicas().all_reduce(summed[call], *reduce_);
    }
    EXPECT_LE(mesh_->shard_group().in_flight(), 2 * kCalls);
    wait(*reduce_);
    wait(*gather_);
    EXPECT_EQ(mesh_->shard_group().in_flight(), 0);
    for (std::size_t call = 0; call < kCalls; ++call) {
        const auto all = on_host(gathered[call]);
        for (std::int64_t i = 0; i < kBlock * size(); ++i) {
            ASSERT_EQ(all[static_cast<std::size_t>(i)],
                      contribution(static_cast<int>(i / kBlock), i));
        }
        ASSERT_EQ(on_host(summed[call])[3], tree(0, size(), 3));
    }
    mesh_->close();
}

TEST_P(MpiStream, BytesReceivedAreTheClosedForm) {
    const TypedSpan span = to_device(contributions(rank(), 6 * size()));
    auto& group = mesh_->shard_group();
    group.all_gather(adjacent_blocks(span, size()), *gather_);
    group.broadcast(span, 0, *gather_);
    EXPECT_EQ(group.bytes_received(), 4 * (6 * (size() - 1) + (rank() == 0 ? 0 : 6 * size())));
    const std::int64_t before = group.bytes_received();
    group.all_reduce(span, *gather_);
    // As a reduce_scatter and an all_gather of equal blocks.
    EXPECT_EQ(group.bytes_received() - before, 4 * 2 * 6 * (size() - 1));
    wait(*gather_);
}

TEST_P(MpiStream, CallsThatBreakTheRulesAreRefused) {
    const TypedSpan span = to_device(contributions(rank(), 12 * size()));
    auto& group = mesh_->shard_group();
    RankBlocks strided = adjacent_blocks(span, size());
    strided.block_count = 5;
    EXPECT_THROW(group.all_gather(strided, *gather_), LogicError);
    EXPECT_THROW(group.reduce_scatter(adjacent_blocks(span, size()), span.part(0, 3), *gather_),
                 LogicError);
    EXPECT_THROW(group.broadcast(span, size(), *gather_), LogicError);
    TypedSpan integers = span;
    integers.dtype = DType::kInt64;
    integers.count = 3;
    EXPECT_THROW(group.all_reduce(integers, *gather_), LogicError);
    TypedSpan elsewhere = span;
    elsewhere.device = DeviceKind::kCuda;
    EXPECT_THROW(group.all_reduce(elsewhere, *gather_), LogicError);
}

// The declared accesses are those of the collective: the checker finds memory that another stream
// uses too early, be it that the collective still writes it or still reads it.
TEST(MpiStreamChecked, MemoryOfACollectiveIsUsedByOthersOnlyAfterIt) {
    using Collective = std::function<void(StreamCommunicator&, TypedSpan, device::Stream&)>;
    const int size = world().size(), rank = world().rank();
    const int other = (rank + 1) % size;
    // Of `size` blocks of two elements, then one block: the block that is read or written.
    struct Case {
        const char* name;
        Collective collective;
        int reads;
        int writes;
    };
    const std::vector<Case> cases{
        {"all_gather",
         [&](auto& group, TypedSpan all, auto& stream) {
             group.all_gather(adjacent_blocks(all.part(0, 2 * size), size), stream);
         },
         rank, size == 1 ? -1 : other},
        {"reduce_scatter",
         [&](auto& group, TypedSpan all, auto& stream) {
             group.reduce_scatter(adjacent_blocks(all.part(0, 2 * size), size),
                                  all.part(2 * size, 2), stream);
         },
         other, size},
        {"all_reduce",
         [&](auto& group, TypedSpan all, auto& stream) {
             group.all_reduce(all.part(0, 2 * size), stream);
         },
         other, other},
        {"broadcast",
         [&](auto& group, TypedSpan all, auto& stream) {
             group.broadcast(all.part(0, 2 * size), 0, stream);
         },
         rank == 0 ? other : -1, rank == 0 ? -1 : other}};

    Progress progress;
    const Mesh groups = make_mesh(find_topology(world(), 0), size, false);
    for (const Case& each : cases) {
        device::CheckedDevice device(5);
        MpiStreamMesh mesh(world(), groups.shard_group, groups.replicas, progress);
        const auto communication = device.make_stream("communication");
        const auto compute = device.make_stream("compute");
        const auto filled = device.make_event(), done = device.make_event();
        const device::Buffer memory = device.allocate("slot", 4 * 2 * (size + 1));
        const TypedSpan all = memory.typed(DType::kFloat32);
        communication->zero(all);
        communication->record(*filled);
        compute->wait(*filled);
        each.collective(mesh.shard_group(), all, *communication);
        const auto read = [&](int block) {
            const TypedSpan span = all.part(2 * block, 2);
            compute->run({.name = "forward", .reads = {&span, 1}}, [] {});
        };
        const auto write = [&](int block) { compute->zero(all.part(2 * block, 2)); };
        if (each.reads >= 0) {
            EXPECT_THROW(write(each.reads), LogicError) << each.name;
        }
        if (each.writes >= 0) {
            EXPECT_THROW(read(each.writes), LogicError) << each.name;
        }
        communication->record(*done);
        compute->wait(*done);
        if (each.reads >= 0) write(each.reads);
        if (each.writes >= 0) read(each.writes);
        compute->record(*done);
        mesh.wait(device, *done);
        world().barrier();
    }
}

}  // namespace
}  // namespace fullshard::comm
