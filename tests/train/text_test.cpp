#include "train/text.h"

#include <gtest/gtest.h>

namespace fullshard::train {
namespace {

TEST(Text, QuantitiesReadAsPeopleWriteThem) {
    EXPECT_EQ(duration_text(0.2), "0 s");
    EXPECT_EQ(duration_text(119.4), "119 s");
    EXPECT_EQ(duration_text(150), "3 min");
    EXPECT_EQ(duration_text(3 * 3600 + 7 * 60), "3 h 07 min");
    EXPECT_EQ(bytes_text(0), "0 B");
    EXPECT_EQ(bytes_text(1023), "1023 B");
    EXPECT_EQ(bytes_text(1536), "1.5 KiB");
    EXPECT_EQ(bytes_text(std::int64_t{5} << 40), "5.0 TiB");
    EXPECT_EQ(count_text(676992), "677.0 K");
}

}  // namespace
}  // namespace fullshard::train
