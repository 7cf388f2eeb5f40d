#include "base/error.h"
#include "comm/mpi_communicator.h"
#include "kernels/half_float.h"
#include "support/mpi_world.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <type_traits>
#include <vector>

namespace fullshard::comm {
namespace {

using fullshard::testing::world;

/// The value rank `rank` contributes at `index`: sums of these depend on the order of summation.
float contribution(int rank, std::int64_t index) {
    return std::ldexp(1.0F + 0.1F * static_cast<float>(rank),
                      (rank * 7 + static_cast<int>(index)) % 20);
}

/// The balanced tree over ranks, written independently of the kernel: split at the largest power of
/// two below the number of leaves.
float tree(int first, int count, std::int64_t index) {
    if (count == 1) return contribution(first, index);
    int left = 1;
    while (left * 2 < count) left *= 2;
    return tree(first, left, index) + tree(first + left, count - left, index);
}

class CommunicatorTest : public ::testing::TestWithParam<std::int64_t> {
  protected:
    CommunicatorTest() : communicator_(world(), progress_, {}, /*max_message_bytes=*/GetParam()) {}
    int rank() const { return communicator_.rank(); }
    int size() const { return communicator_.size(); }
    Progress progress_;
    MpiCommunicator communicator_;
};

// 20 bytes cut messages of a few elements into many: the path that counts beyond 2^31 take.
INSTANTIATE_TEST_SUITE_P(MessageSizes, CommunicatorTest,
                         ::testing::Values(20, MpiCommunicator::kMaxMessageBytes));

TEST_P(CommunicatorTest, AllGatherInPlace) {
    for (const std::int64_t block : {0, 1, 7, 1000}) {
        std::vector<float> values(static_cast<std::size_t>(block * size()), NAN);
        for (std::int64_t i = 0; i < block; ++i) {
            values[static_cast<std::size_t>(rank() * block + i)] = contribution(rank(), i);
        }
        communicator_.all_gather(adjacent_blocks(std::span(values), size()), 0).wait();
        for (int r = 0; r < size(); ++r) {
            for (std::int64_t i = 0; i < block; ++i) {
                ASSERT_EQ(values[static_cast<std::size_t>(r * block + i)], contribution(r, i));
            }
        }
    }
}

TEST_P(CommunicatorTest, AllGatherOfStridedBlocksLeavesTheGapsAlone) {
    constexpr std::int64_t kBlock = 5, kStride = 12;
    std::vector<float> values(static_cast<std::size_t>(kStride * size()), -1.0F);
    for (std::int64_t i = 0; i < kBlock; ++i) {
        values[static_cast<std::size_t>(rank() * kStride + i)] = contribution(rank(), i);
    }
    communicator_.all_gather({reinterpret_cast<std::byte*>(values.data()), kBlock, kStride}, 3)
        .wait();
    for (int r = 0; r < size(); ++r) {
        for (std::int64_t i = 0; i < kStride; ++i) {
            ASSERT_EQ(values[static_cast<std::size_t>(r * kStride + i)],
                      i < kBlock ? contribution(r, i) : -1.0F);
        }
    }
}

TEST_P(CommunicatorTest, ReduceScatterSumsInTreeOrder) {
    for (const std::int64_t block : {0, 1, 7, 1000}) {
        std::vector<float> values(static_cast<std::size_t>(block * size()));
        for (std::int64_t i = 0; i < block * size(); ++i) {
            values[static_cast<std::size_t>(i)] = contribution(rank(), i);
        }
        std::vector<float> out(static_cast<std::size_t>(block), NAN);
        std::vector<float> scratch(static_cast<std::size_t>(block * (size() - 1)), NAN);
        communicator_
            .reduce_scatter(adjacent_blocks(std::span(values), size()), std::span(out),
                            std::span(scratch), 0)
            .wait();
        for (std::int64_t i = 0; i < block; ++i) {
            ASSERT_EQ(out[static_cast<std::size_t>(i)], tree(0, size(), rank() * block + i));
        }
    }
}

TEST_P(CommunicatorTest, AllReduceOfAnyLengthIncludingFewerElementsThanRanks) {
    for (const std::int64_t count : {0, 1, 2, 3, 5, 1001}) {
        std::vector<float> values(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i) {
            values[static_cast<std::size_t>(i)] = contribution(rank(), i);
        }
        const std::int64_t block = (count + size() - 1) / size();
        std::vector<float> scratch(static_cast<std::size_t>(block * (size() - 1)), NAN);
        communicator_.all_reduce(std::span(values), std::span(scratch), 0).wait();
        for (std::int64_t i = 0; i < count; ++i) {
            ASSERT_EQ(values[static_cast<std::size_t>(i)], tree(0, size(), i)) << "count " << count;
        }
    }
}

/// Elements of a half-width type, their sums, and what such sums are by the balanced tree: every
/// value and every addition is rounded to the type of the result.
template <typename T>
struct HalfSums {
    static T narrow(float value) {
        if constexpr (std::is_same_v<T, BFloat16>) {
            return kernels::to_bfloat16(value);
        } else {
            return kernels::to_float16(value);
        }
    }
    static float rounded(float value) { return kernels::to_float(narrow(value)); }

    static std::vector<T> contributions(int rank, std::int64_t count) {
        std::vector<T> values(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i) {
            values[static_cast<std::size_t>(i)] = narrow(contribution(rank, i) / 1024);
        }
        return values;
    }
    static float tree(bool half_sum, int first, int count, std::int64_t index) {
        if (count == 1) return rounded(contribution(first, index) / 1024);
        int left = 1;
        while (left * 2 < count) left *= 2;
        const float sum =
            tree(half_sum, first, left, index) + tree(half_sum, first + left, count - left, index);
        return half_sum ? rounded(sum) : sum;
    }

    static void reduce_scatter(MpiCommunicator& communicator) {
        const int size = communicator.size(), rank = communicator.rank();
        for (const std::int64_t block : {0, 1, 7, 1000}) {
            auto values = contributions(rank, block * size);
            std::vector<T> scratch(static_cast<std::size_t>(block * (size - 1)));
            std::vector<float> wide(static_cast<std::size_t>(block), NAN);
            std::vector<T> half(static_cast<std::size_t>(block));
            const RankBlocks blocks = adjacent_blocks(std::span(values), size);
            communicator.reduce_scatter(blocks, std::span(wide), std::span(scratch), 0).wait();
            communicator.reduce_scatter(blocks, std::span(half), std::span(scratch), 0).wait();
            for (std::int64_t i = 0; i < block; ++i) {
                const std::int64_t element = rank * block + i;
                ASSERT_EQ(wide[static_cast<std::size_t>(i)], tree(false, 0, size, element));
                ASSERT_EQ(kernels::to_float(half[static_cast<std::size_t>(i)]),
                          tree(true, 0, size, element));
            }
        }
    }

    static void all_reduce(MpiCommunicator& communicator) {
        const int size = communicator.size();
        for (const std::int64_t count : {0, 1, 2, 3, 5, 1001}) {
            auto values = contributions(communicator.rank(), count);
            const std::int64_t block = (count + size - 1) / size;
            std::vector<T> scratch(static_cast<std::size_t>(block * (size - 1)));
            communicator.all_reduce(std::span(values), std::span(scratch), 0).wait();
            for (std::int64_t i = 0; i < count; ++i) {
                ASSERT_EQ(kernels::to_float(values[static_cast<std::size_t>(i)]),
                          tree(true, 0, size, i))
                    << "count " << count;
            }
        }
    }
};

TEST_P(CommunicatorTest, SumsOfBFloat16) {
    HalfSums<BFloat16>::reduce_scatter(communicator_);
    HalfSums<BFloat16>::all_reduce(communicator_);
}

TEST_P(CommunicatorTest, SumsOfFloat16) {
    HalfSums<Float16>::reduce_scatter(communicator_);
    HalfSums<Float16>::all_reduce(communicator_);
}

// bf16 has 8 significant bits: 256 + 1 is a tie, and every further 1 is lost as well.
TEST_P(CommunicatorTest, Float32ResultKeepsWhatBFloat16Loses) {
    const float mine = rank() == 0 ? 256.0F : 1.0F;
    std::vector<BFloat16> values(static_cast<std::size_t>(size()), kernels::to_bfloat16(mine));
    std::vector<BFloat16> half(1), scratch(static_cast<std::size_t>(size() - 1));
    std::vector<float> wide(1);
    const RankBlocks blocks = adjacent_blocks(std::span(values), size());
    communicator_.reduce_scatter(blocks, std::span(wide), std::span(scratch), 0).wait();
    communicator_.reduce_scatter(blocks, std::span(half), std::span(scratch), 0).wait();
    EXPECT_EQ(wide[0], 255.0F + static_cast<float>(size()));
    // Four ranks: (256 + 1) + (1 + 1), where the right half is large enough to count.
    EXPECT_EQ(kernels::to_float(half[0]), size() == 4 ? 258.0F : 256.0F);
}

TEST_P(CommunicatorTest, GathersAndBroadcastsOfAnyType) {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(3 * size()), -1);
    std::vector<Float16> halves(static_cast<std::size_t>(3 * size()));
    for (std::size_t i = 0; i < 3; ++i) {
        const std::size_t at = static_cast<std::size_t>(3 * rank()) + i;
        numbers[at] = (std::int64_t{1} << 40) + rank();
        halves[at].bits = static_cast<std::uint16_t>(100 * rank() + 1);
    }
    communicator_.all_gather(adjacent_blocks(std::span(numbers), size()), 0).wait();
    communicator_.all_gather(adjacent_blocks(std::span(halves), size()), 0).wait();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        EXPECT_EQ(numbers[i], (std::int64_t{1} << 40) + static_cast<std::int64_t>(i / 3));
        EXPECT_EQ(halves[i].bits, 100 * (i / 3) + 1);
    }
    std::vector<std::int64_t> value(5, rank());
    communicator_.broadcast(std::span(value), size() - 1, 0).wait();
    EXPECT_EQ(value, std::vector<std::int64_t>(5, size() - 1));
}

TEST_P(CommunicatorTest, RefusesSumsOfIntegersAndScratchOfAnotherType) {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(size()));
    std::vector<BFloat16> halves(static_cast<std::size_t>(size())), half(1);
    std::vector<float> floats(static_cast<std::size_t>(size()));
    const RankBlocks blocks = adjacent_blocks(std::span(halves), size());
    EXPECT_THROW(communicator_.all_reduce(std::span(numbers), std::span(numbers), 0), LogicError);
    EXPECT_THROW(communicator_.all_reduce(std::span(halves), std::span(floats), 0), LogicError);
    EXPECT_THROW(
        communicator_.reduce_scatter(blocks, std::span(numbers).first(1), std::span(halves), 0),
        LogicError);
    EXPECT_THROW(communicator_.reduce_scatter(blocks, std::span(half), std::span(floats), 0),
                 LogicError);
}

TEST_P(CommunicatorTest, BroadcastFromEveryRoot) {
    for (int root = 0; root < size(); ++root) {
        std::vector<float> values(33, rank() == root ? static_cast<float>(root + 1) : 0.0F);
        communicator_.broadcast(std::span(values), root, 1).wait();
        for (const float value : values) ASSERT_EQ(value, static_cast<float>(root + 1));
    }
}

TEST_P(CommunicatorTest, CollectivesOnDifferentChannelsMayBePostedInDifferentOrders) {
    std::vector<float> a(static_cast<std::size_t>(8 * size())), b(a.size());
    a[static_cast<std::size_t>(8 * rank())] = static_cast<float>(rank() + 1);
    b[static_cast<std::size_t>(8 * rank())] = static_cast<float>(rank() + 101);
    Handle first, second;
    if (rank() % 2 == 0) {
        first = communicator_.all_gather(adjacent_blocks(std::span(a), size()), 0);
        second = communicator_.all_gather(adjacent_blocks(std::span(b), size()), 1);
    } else {
        second = communicator_.all_gather(adjacent_blocks(std::span(b), size()), 1);
        first = communicator_.all_gather(adjacent_blocks(std::span(a), size()), 0);
    }
    second.wait();
    first.wait();
    for (int r = 0; r < size(); ++r) {
        EXPECT_EQ(a[static_cast<std::size_t>(8 * r)], static_cast<float>(r + 1));
        EXPECT_EQ(b[static_cast<std::size_t>(8 * r)], static_cast<float>(r + 101));
    }
}

TEST_P(CommunicatorTest, CountsReceivedBytesByTheirClosedForm) {
    const std::int64_t before = communicator_.bytes_received();
    std::vector<float> values(static_cast<std::size_t>(10 * size()), 1.0F), out(10);
    std::vector<float> scratch(static_cast<std::size_t>(10 * (size() - 1)));
    const RankBlocks blocks = adjacent_blocks(std::span(values), size());
    communicator_.all_gather(blocks, 0).wait();
    communicator_.reduce_scatter(blocks, std::span(out), std::span(scratch), 1).wait();
    EXPECT_EQ(communicator_.bytes_received() - before, 2 * (size() - 1) * 10 * 4);
}

TEST(Communicator, MissingPeerIsAnErrorInsteadOfAHang) {
    if (world().size() == 1) GTEST_SKIP() << "one rank has no peer to miss";
    // A group of its own, because a collective that timed out leaves it unusable.
    fullshard::testing::world().barrier();
    static const Group short_tempered = Group::world(world().rank() == 0 ? 0.3 : 40.0);
    static Progress progress;
    static MpiCommunicator communicator(short_tempered, progress);
    static std::vector<float> values(static_cast<std::size_t>(world().size()), 1.0F);
    if (world().rank() == 0) {
        auto handle =
            communicator.all_gather(adjacent_blocks(std::span(values), world().size()), 0);
        try {
            handle.wait();
            FAIL() << "no error";
        } catch (const std::exception& error) {
            EXPECT_NE(std::string(error.what()).find("all_gather"), std::string::npos)
                << error.what();
        }
    }
    world().barrier();
    if (world().rank() != 0)
        communicator.all_gather(adjacent_blocks(std::span(values), world().size()), 0).wait();
    world().barrier();
}

}  // namespace
}  // namespace fullshard::comm
