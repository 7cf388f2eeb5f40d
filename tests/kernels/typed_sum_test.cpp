#include "base/error.h"
#include "base/rng.h"
#include "kernels/cast.h"
#include "kernels/half_reference.h"
#include "kernels/ordered_sum.h"
#include "support/allocation_counter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace fullshard::kernels {
namespace {

using fullshard::testing::rounded_to;
using fullshard::testing::same_number;

constexpr DType kTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

/// Elements of any type with room for the widest one.
class Values {
  public:
    Values(DType dtype, std::int64_t count)
        : memory_(static_cast<std::size_t>(count)), dtype_(dtype) {}
    Values(DType dtype, const std::vector<float>& values)
        : Values(dtype, static_cast<std::int64_t>(values.size())) {
        narrow(values, span());
    }

    TypedSpan span() {
        TypedSpan span{std::span(memory_)};
        span.dtype = dtype_;
        return span;
    }
    std::vector<float> as_floats() {
        std::vector<float> values(memory_.size());
        widen(span(), values);
        return values;
    }

  private:
    std::vector<float> memory_;
    DType dtype_;
};

// Of very different magnitude, within the range of fp16 but for some that overflow it as a sum.
std::vector<float> random_values(std::uint64_t key, std::size_t count) {
    const RandomStream stream(key);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = static_cast<float>(std::ldexp(stream.normal(i), static_cast<int>(i % 41) - 26));
    }
    return values;
}

// The definition, one number at a time.
float reference_tree(DType sum_type, const std::vector<std::vector<float>>& sources,
                     std::size_t first, std::size_t count, std::size_t element) {
    if (count == 1) return rounded_to(sum_type, sources[first][element]);
    std::size_t split = 1;
    while (split * 2 < count) split *= 2;
    const float left = reference_tree(sum_type, sources, first, split, element);
    const float right = reference_tree(sum_type, sources, first + split, count - split, element);
    return rounded_to(sum_type, left + right);
}

std::vector<const std::byte*> pointers(std::vector<Values>& sources) {
    std::vector<const std::byte*> result;
    for (Values& source : sources) result.push_back(source.span().data);
    return result;
}

TEST(TypedTreeSum, EqualsTheDefinitionForAllTypesCountsAndSizes) {
    for (const DType source_type : kTypes) {
        for (const DType sum_type : kTypes) {
            for (std::size_t count = 1; count <= 9; ++count) {
                for (const std::int64_t size : {0, 1, 17, 512, 1031}) {
                    std::vector<Values> sources;
                    std::vector<std::vector<float>> floats;
                    for (std::size_t k = 0; k < count; ++k) {
                        sources.emplace_back(source_type,
                                             random_values(k, static_cast<std::size_t>(size)));
                        floats.push_back(sources.back().as_floats());
                    }
                    // One more element behind the end shows a write too far.
                    Values out(sum_type, std::vector<float>(size + 1, -77.0f));
                    tree_sum(out.span().part(0, size), pointers(sources), source_type);
                    const auto sum = out.as_floats();
                    for (std::int64_t i = 0; i < size; ++i) {
                        ASSERT_TRUE(
                            same_number(sum[i], reference_tree(sum_type, floats, 0, count, i)))
                            << count << " sources of " << name_of(source_type) << " into "
                            << name_of(sum_type) << ", element " << i << " of " << size;
                    }
                    EXPECT_EQ(sum[size], rounded_to(sum_type, -77.0f));
                }
            }
        }
    }
}

TEST(TypedTreeSum, OutputMayBeAnySourceOfItsType) {
    for (const DType dtype : kTypes) {
        for (std::size_t count = 1; count <= 9; ++count) {
            for (std::size_t target = 0; target < count; ++target) {
                std::vector<Values> sources;
                for (std::size_t k = 0; k < count; ++k) {
                    sources.emplace_back(dtype, random_values(k, 1031));
                }
                Values expected(dtype, 1031);
                tree_sum(expected.span(), pointers(sources), dtype);
                tree_sum(sources[target].span(), pointers(sources), dtype);
                EXPECT_EQ(sources[target].as_floats(), expected.as_floats())
                    << name_of(dtype) << ": source " << target << " of " << count;
            }
        }
    }
}

// bf16 has 8 significant bits: 257 is a tie between 256 and 258. fp32 sums keep it.
TEST(TypedTreeSum, TheTypeOfTheResultDecidesWhatIsLost) {
    std::vector<Values> sources{{DType::kBFloat16, std::vector{256.0f}},
                                {DType::kBFloat16, std::vector{1.0f}},
                                {DType::kBFloat16, std::vector{1.0f}}};
    Values wide(DType::kFloat32, 1), narrow_sum(DType::kBFloat16, 1);
    tree_sum(wide.span(), pointers(sources), DType::kBFloat16);
    tree_sum(narrow_sum.span(), pointers(sources), DType::kBFloat16);
    EXPECT_EQ(wide.as_floats()[0], 258.0f);
    EXPECT_EQ(narrow_sum.as_floats()[0], 256.0f);
}

TEST(TypedTreeSum, OverflowAndNanAreSeenInTheResult) {
    std::vector<Values> sources{{DType::kFloat16, std::vector{60000.0f, -60000.0f, NAN}},
                                {DType::kFloat16, std::vector{60000.0f, -60000.0f, 1.0f}}};
    Values half(DType::kFloat16, 3), wide(DType::kFloat32, 3);
    tree_sum(half.span(), pointers(sources), DType::kFloat16);
    tree_sum(wide.span(), pointers(sources), DType::kFloat16);
    EXPECT_EQ(half.as_floats()[0], HUGE_VALF);
    EXPECT_EQ(half.as_floats()[1], -HUGE_VALF);
    EXPECT_TRUE(std::isnan(half.as_floats()[2]));
    EXPECT_EQ(wide.as_floats()[0], 2 * rounded_to(DType::kFloat16, 60000.0));
}

TEST(TypedTreeSum, RefusesNoSourcesAndIntegers) {
    std::vector<float> out(3);
    std::vector<std::int64_t> integers(3);
    const std::vector<const std::byte*> sources{std::as_bytes(std::span(integers)).data()};
    EXPECT_THROW(tree_sum(std::span(out), {}, DType::kBFloat16), LogicError);
    EXPECT_THROW(tree_sum(std::span(out), sources, DType::kInt64), LogicError);
    EXPECT_THROW(tree_sum(std::span(integers), sources, DType::kFloat32), LogicError);
}

TEST(AddInto, WidensItsAddend) {
    for (const DType dtype : kTypes) {
        for (std::int64_t offset = 0; offset < 9; ++offset) {
            auto accumulator = random_values(5, 1031);
            Values addend(dtype, random_values(6, 1031));
            const auto floats = addend.as_floats();
            auto expected = accumulator;
            for (std::size_t i = offset; i < expected.size(); ++i) expected[i] += floats[i];
            add_into(std::span(accumulator).subspan(offset),
                     addend.span().part(offset, 1031 - offset));
            EXPECT_EQ(accumulator, expected) << name_of(dtype) << " from " << offset;
        }
    }
}

TEST(AddInto, RefusesIntegers) {
    std::vector<float> accumulator(3);
    std::vector<std::int64_t> integers(3);
    EXPECT_THROW(add_into(accumulator, std::span(integers)), LogicError);
}

TEST(TypedTreeSum, AllocatesNothing) {
    std::vector<Values> sources;
    for (std::uint64_t k = 0; k < 5; ++k) {
        sources.emplace_back(DType::kBFloat16, random_values(k, 2000));
    }
    Values half(DType::kBFloat16, 2000);
    std::vector<float> wide(2000);
    const auto leaves = pointers(sources);
    const std::int64_t before = allocation_count();
    ASSERT_GT(before, 0);
    tree_sum(half.span(), leaves, DType::kBFloat16);
    tree_sum(std::span(wide), leaves, DType::kBFloat16);
    add_into(wide, half.span());
    EXPECT_EQ(allocation_count(), before);
}

}  // namespace
}  // namespace fullshard::kernels
