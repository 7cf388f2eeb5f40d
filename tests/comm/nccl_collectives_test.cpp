// Collectives in a run: arguments, order, and results against closed forms.
#include "comm/exact_numbers.h"
#include "comm/nccl_rig.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace fullshard::testing {
namespace {

template <typename T>
constexpr ncclDataType_t kNcclType = std::is_same_v<T, float>      ? ncclFloat32
                                     : std::is_same_v<T, BFloat16> ? ncclBfloat16
                                     : std::is_same_v<T, Float16>  ? ncclFloat16
                                                                   : ncclInt64;

const std::vector<std::int64_t> kCounts{0, 1, 2, 3, 5, 1001};

class NcclCollectives : public NcclTest {
  protected:
    template <typename T>
    std::vector<T> contributions(int of_rank, std::int64_t count) const {
        std::vector<T> values(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i) {
            values[static_cast<std::size_t>(i)] = number<T>(contribution(of_rank, i));
        }
        return values;
    }

    /// The one call that was made since, which has these arguments; none for no elements.
    void expect_call(const NcclCall& wanted) {
        if (wanted.count == 0) {
            EXPECT_TRUE(shim_.calls.empty());
            return;
        }
        ASSERT_EQ(shim_.calls.size(), 1U);
        const NcclCall& call = shim_.calls[0];
        EXPECT_EQ(call.function, wanted.function);
        EXPECT_EQ(call.comm, "world communicator");
        EXPECT_EQ(call.count, wanted.count);
        EXPECT_EQ(call.type, wanted.type);
        EXPECT_EQ(call.op, wanted.op);
        EXPECT_EQ(call.root, wanted.root);
        EXPECT_EQ(call.send, wanted.send);
        EXPECT_EQ(call.receive, wanted.receive);
        EXPECT_EQ(call.stream, stream_->native());
    }

    template <typename T>
    void gathers_and_broadcasts() {
        for (const std::int64_t count : kCounts) {
            auto values = contributions<T>(rank(), count * size());
            const RankBlocks blocks = adjacent_blocks(std::span(values), size());
            shim_.calls.clear();
            mesh_->shard_group().all_gather(blocks, *stream_);
            expect_call({.function = "ncclAllGather",
                         .count = count,
                         .type = kNcclType<T>,
                         .send = blocks.block(rank()),
                         .receive = values.data()});
            for (std::int64_t i = 0; i < count * size(); ++i) {
                ASSERT_EQ(integer(values[static_cast<std::size_t>(i)]),
                          contribution(static_cast<int>(i / count), i));
            }
            for (int root = 0; root < size(); ++root) {
                auto all = contributions<T>(rank(), count);
                shim_.calls.clear();
                mesh_->shard_group().broadcast(std::span(all), root, *stream_);
                expect_call({.function = "ncclBroadcast",
                             .count = count,
                             .type = kNcclType<T>,
                             .root = root,
                             .send = all.data(),
                             .receive = all.data()});
                for (std::int64_t i = 0; i < count; ++i) {
                    ASSERT_EQ(integer(all[static_cast<std::size_t>(i)]), contribution(root, i));
                }
            }
        }
    }

    template <typename T>
    void sums() {
        for (const std::int64_t count : kCounts) {
            auto values = contributions<T>(rank(), count * size());
            std::vector<T> out(static_cast<std::size_t>(count));
            const RankBlocks blocks = adjacent_blocks(std::span(values), size());
            shim_.calls.clear();
            mesh_->shard_group().reduce_scatter(blocks, std::span(out), *stream_);
            expect_call({.function = "ncclReduceScatter",
                         .count = count,
                         .type = kNcclType<T>,
                         .op = ncclSum,
                         .send = values.data(),
                         .receive = out.data()});
            const std::span<T> own = std::span(values).subspan(
                static_cast<std::size_t>(rank() * count), static_cast<std::size_t>(count));
            mesh_->shard_group().reduce_scatter(blocks, own, *stream_);

            auto all = contributions<T>(rank(), count);
            shim_.calls.clear();
            mesh_->shard_group().all_reduce(std::span(all), *stream_);
            expect_call({.function = "ncclAllReduce",
                         .count = count,
                         .type = kNcclType<T>,
                         .op = ncclSum,
                         .send = all.data(),
                         .receive = all.data()});
            for (std::int64_t i = 0; i < count; ++i) {
                const auto at = static_cast<std::size_t>(i);
                ASSERT_EQ(integer(out[at]), sum_over(size(), rank() * count + i));
                ASSERT_EQ(integer(own[at]), sum_over(size(), rank() * count + i));
                ASSERT_EQ(integer(all[at]), sum_over(size(), i));
            }
        }
    }

    std::unique_ptr<comm::StreamMesh> mesh_ = start(nccl_groups(world().size()));
    std::unique_ptr<device::Stream> stream_ = gpu_.make_stream("gather", device::Priority::kNormal);
};

TEST_F(NcclCollectives, GathersAndBroadcastsOfAnyType) {
    gathers_and_broadcasts<float>();
    gathers_and_broadcasts<BFloat16>();
    gathers_and_broadcasts<Float16>();
    gathers_and_broadcasts<std::int64_t>();
}

TEST_F(NcclCollectives, SumsOfFloatingPointTypes) {
    sums<float>();
    sums<BFloat16>();
    sums<Float16>();
}

TEST_F(NcclCollectives, IntegersAreNotSummed) {
    std::vector<std::int64_t> values(3);
    EXPECT_THROW(mesh_->shard_group().all_reduce(std::span(values), *stream_), LogicError);
}

TEST_F(NcclCollectives, BytesReceivedAreTheClosedForm) {
    // 5 elements over up to 4 ranks: the last blocks of the all_reduce are shorter or empty.
    std::vector<float> values(static_cast<std::size_t>(7 * size())), out(7), few(5);
    auto& group = mesh_->shard_group();
    group.all_gather(adjacent_blocks(std::span(values), size()), *stream_);
    EXPECT_EQ(group.bytes_received(), 4 * 7 * (size() - 1));
    group.reduce_scatter(adjacent_blocks(std::span(values), size()), std::span(out), *stream_);
    EXPECT_EQ(group.bytes_received(), 2 * 4 * 7 * (size() - 1));
    const std::int64_t before = group.bytes_received();
    group.all_reduce(std::span(few), *stream_);
    std::vector<std::int64_t> all(static_cast<std::size_t>(size()));
    const std::int64_t mine = group.bytes_received() - before;
    world().all_gather(std::span(&mine, 1), all);
    std::int64_t total = 0;
    for (const std::int64_t each : all) total += each;
    EXPECT_EQ(total, 2 * 4 * 5 * (size() - 1)) << "each element is sent, and each sum is";
    group.broadcast(std::span(few), size() - 1, *stream_);
    EXPECT_EQ(group.bytes_received() - before - mine, last() ? 0 : 4 * 5);
}

// Shard groups and replicas at once, each with its own stream.
TEST_F(NcclTest, TwoCommunicatorsInOneOrderOnAllRanks) {
    const int shard_size = size() % 2 == 0 ? 2 : size();
    const NcclGroups groups = nccl_groups(shard_size);
    const auto mesh = start(groups);
    const auto gather = gpu_.make_stream("gather", device::Priority::kHigh);
    const auto reduce = gpu_.make_stream("reduce", device::Priority::kNormal);
    constexpr std::int64_t kBlock = 3;
    std::vector<float> grads(static_cast<std::size_t>(kBlock * shard_size)), shard(kBlock);
    for (std::size_t i = 0; i < grads.size(); ++i) {
        grads[i] = static_cast<float>(contribution(rank(), static_cast<std::int64_t>(i)));
    }
    shim_.calls.clear();
    const auto calls_before = world().ledger().report();
    // HYBRID's reduction: to the shard's owner, then over the replicas; and a gather meanwhile.
    std::vector<float> parameters(grads.size(), static_cast<float>(rank()));
    mesh->shard_group().reduce_scatter(adjacent_blocks(std::span(grads), shard_size),
                                       std::span(shard), *reduce);
    mesh->shard_group().all_gather(adjacent_blocks(std::span(parameters), shard_size), *gather);
    mesh->replicas().all_reduce(std::span(shard), *reduce);

    const std::int64_t first = mesh->shard_group().rank() * kBlock;
    for (std::int64_t i = 0; i < kBlock; ++i) {
        EXPECT_EQ(shard[static_cast<std::size_t>(i)], sum_over(size(), first + i));
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        EXPECT_EQ(parameters[i], rank() / shard_size * shard_size +
                                     static_cast<int>(i / static_cast<std::size_t>(kBlock)));
    }
    ASSERT_EQ(shim_.calls.size(), 3U);
    EXPECT_EQ(shim_.calls[0].stream, reduce->native());
    EXPECT_EQ(shim_.calls[1].stream, gather->native());
    EXPECT_EQ(shim_.calls[2].stream, reduce->native());
    EXPECT_NE(reduce->native(), gather->native());
    std::string order;
    for (const std::string& call : call_texts(shim_)) order += call + "; ";
    for (const std::string& other : world().all_gather(order)) EXPECT_EQ(other, order);
    mesh->close();
}

TEST_F(NcclCollectives, EveryCallIsInTheLedgerUnderItsGroup) {
    const auto track = [&] {
        for (const auto& each : world().ledger().report().tracks) {
            if (each.name == "shard group") return each;
        }
        return comm::RankReport::Track{};
    };
    const std::int64_t before = track().calls;
    std::vector<float> values(static_cast<std::size_t>(8 * size())), none;
    mesh_->shard_group().all_gather(adjacent_blocks(std::span(values), size()), *stream_);
    EXPECT_EQ(track().calls, before + 1);
    EXPECT_EQ(track().last, "all_gather of 8 fp32");
    mesh_->shard_group().all_reduce(std::span(none), *stream_);
    EXPECT_EQ(track().calls, before + 2) << "calls without elements are calls";
    mesh_->shard_group().broadcast(std::span(values).first(2), 0, *stream_);
    EXPECT_EQ(track().last, "broadcast of 2 fp32 from rank 0");
}

}  // namespace
}  // namespace fullshard::testing
