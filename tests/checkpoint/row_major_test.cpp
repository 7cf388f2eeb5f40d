#include "checkpoint/format/row_major.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <limits>

namespace fullshard::checkpoint {
namespace {

/// Row-major element numbers of a box, by counting through its indices.
std::vector<std::int64_t> elements(const std::vector<std::int64_t>& shape, const Box& box) {
    std::vector<std::int64_t> numbers = {0};
    for (std::size_t d = 0; d < shape.size(); ++d) {
        std::vector<std::int64_t> longer;
        for (const std::int64_t number : numbers) {
            for (std::int64_t i = 0; i < box.extent[d]; ++i) {
                longer.push_back(number * shape[d] + box.start[d] + i);
            }
        }
        numbers = std::move(longer);
    }
    return numbers;
}

TEST(RowMajor, BoxesHoldEveryRangeInOrder) {
    const std::vector<std::vector<std::int64_t>> shapes = {
        {13}, {1}, {5, 7}, {1, 6}, {6, 1}, {3, 4, 5}, {2, 1, 3}, {2, 3, 2, 4}};
    for (const auto& shape : shapes) {
        const std::int64_t count = numel(shape);
        for (std::int64_t begin = 0; begin <= count; ++begin) {
            for (std::int64_t end = begin; end <= count; ++end) {
                const auto boxes = boxes_of_range(shape, begin, end - begin);
                ASSERT_LE(boxes.size(), 2 * shape.size() - 1);
                std::int64_t next = begin;
                for (const Box& box : boxes) {
                    const auto numbers = elements(shape, box);
                    ASSERT_EQ(static_cast<std::int64_t>(numbers.size()), box.count);
                    for (const std::int64_t number : numbers) ASSERT_EQ(number, next++);
                }
                ASSERT_EQ(next, end);
            }
        }
    }
}

TEST(RowMajor, WholeTensorIsOneBox) {
    EXPECT_EQ(boxes_of_range(std::vector<std::int64_t>{3, 4, 5}, 0, 60),
              (std::vector<Box>{{{0, 0, 0}, {3, 4, 5}, 60}}));
}

TEST(RowMajor, ScalarHasOneElement) {
    EXPECT_EQ(boxes_of_range({}, 0, 1), (std::vector<Box>{{{}, {}, 1}}));
    EXPECT_TRUE(boxes_of_range({}, 1, 0).empty());
}

TEST(RowMajor, RangeOutsideIsABug) {
    const std::vector<std::int64_t> shape = {2, 3};
    EXPECT_THROW(boxes_of_range(shape, 0, 7), LogicError);
    EXPECT_THROW(boxes_of_range(shape, -1, 2), LogicError);
    EXPECT_THROW(boxes_of_range(shape, 6, 1), LogicError);
}

TEST(RowMajor, ShapesOfFilesAreChecked) {
    using Shape = std::vector<std::int64_t>;
    constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
    EXPECT_EQ(checked_numel(Shape{}), 1);
    EXPECT_EQ(checked_numel(Shape{3, 4}), 12);
    EXPECT_EQ(checked_numel(Shape{kHuge / 4}), kHuge / 4);
    EXPECT_EQ(checked_numel(Shape{kHuge / 4 + 1}), std::nullopt);
    EXPECT_EQ(checked_numel(Shape{std::int64_t{1} << 32, std::int64_t{1} << 32}), std::nullopt);
    EXPECT_EQ(checked_numel(Shape{4, 0}), std::nullopt);
    EXPECT_EQ(checked_numel(Shape{4, -1}), std::nullopt);
}

}  // namespace
}  // namespace fullshard::checkpoint
