#include "checkpoint/format/digest.h"

#include <gtest/gtest.h>

#include <string>

namespace fullshard::checkpoint {
namespace {

// Published by the XXH3 specification for the empty input; a fixed algorithm is part of the format.
TEST(Digest, IsXxh3Of64Bits) {
    EXPECT_EQ(digest(std::string_view{}), 0x2d06800538d394c2u);
}

TEST(Digest, OfPiecesIsThatOfTheWhole) {
    std::string bytes;
    for (int i = 0; i < 5000; ++i) bytes += static_cast<char>(i * 131);
    for (const std::size_t cut : {0, 1, 240, 256, 4999, 5000}) {
        RunningDigest pieces;
        pieces.update(bytes.data(), cut);
        pieces.update(bytes.data() + cut, bytes.size() - cut);
        EXPECT_EQ(pieces.value(), digest(bytes)) << cut;
    }
}

TEST(Digest, TextHasSixteenDigits) {
    EXPECT_EQ(digest_text(0xab), "00000000000000ab");
    EXPECT_EQ(digest_text(0xfedcba9876543210), "fedcba9876543210");
}

}  // namespace
}  // namespace fullshard::checkpoint
