#include "checkpoint/export/zip.h"

#include <gtest/gtest.h>

namespace fullshard::checkpoint {
namespace {

/// A little-endian number inside of bytes.
std::uint64_t number(const std::string& bytes, std::size_t at, int width) {
    std::uint64_t value = 0;
    for (int i = width; i-- > 0;) {
        value = value << 8 | static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)]);
    }
    return value;
}

// Offsets of fields: PKWARE's APPNOTE 6.3, 4.3.7 (local header) and 4.3.12 to 4.3.16.
constexpr std::size_t kNameLength = 26;
constexpr std::size_t kExtraLength = 28;

TEST(ZipTest, MembersBeginAtMultiplesOf64RightBehindTheirHeaders) {
    ZipLayout zip;
    std::int64_t end = 0;
    std::vector<std::int64_t> offsets;
    for (const std::int64_t bytes : {0, 1, 63, 64, 1000}) {
        offsets.push_back(zip.add("archive/data/" + std::to_string(bytes), bytes));
        EXPECT_EQ(offsets.back() % 64, 0);
        const ZipLayout::Header header = zip.header(offsets.size() - 1, 0x12345678);
        EXPECT_EQ(header.offset, end);
        EXPECT_EQ(header.offset + std::ssize(header.bytes), offsets.back());
        EXPECT_EQ(number(header.bytes, 0, 4), 0x04034b50u);
        EXPECT_EQ(number(header.bytes, 14, 4), 0x12345678u);
        EXPECT_EQ(number(header.bytes, 22, 4), static_cast<std::uint64_t>(bytes));
        EXPECT_EQ(30 + number(header.bytes, kNameLength, 2) + number(header.bytes, kExtraLength, 2),
                  header.bytes.size());
        end = offsets.back() + bytes;
    }
    const ZipLayout::Header directory = zip.directory({1, 2, 3, 4, 5});
    EXPECT_EQ(directory.offset, end);
    EXPECT_EQ(directory.offset + std::ssize(directory.bytes), zip.bytes());
    const std::string last = directory.bytes.substr(directory.bytes.size() - 22);
    EXPECT_EQ(number(last, 0, 4), 0x06054b50u);
    EXPECT_EQ(number(last, 10, 2), 5u);
    EXPECT_EQ(number(last, 12, 4), directory.bytes.size() - 22);
    EXPECT_EQ(number(last, 16, 4), static_cast<std::uint64_t>(end));
}

TEST(ZipTest, SizesAndOffsetsBeyond32BitsUseZip64) {
    constexpr std::int64_t kLarge = (std::int64_t{1} << 32) + 5;
    ZipLayout zip;
    zip.add("large", kLarge);
    const std::int64_t second = zip.add("behind", 7);
    EXPECT_GT(second, kLarge);

    const std::string local = zip.header(0, 9).bytes;
    EXPECT_EQ(number(local, 18, 4), 0xffffffffu);
    EXPECT_EQ(number(local, 22, 4), 0xffffffffu);
    const std::size_t extra = 30 + 5;
    EXPECT_EQ(number(local, extra, 2), 1u);
    EXPECT_EQ(number(local, extra + 2, 2), 16u);
    EXPECT_EQ(number(local, extra + 4, 8), static_cast<std::uint64_t>(kLarge));
    EXPECT_EQ(number(local, extra + 12, 8), static_cast<std::uint64_t>(kLarge));

    const ZipLayout::Header directory = zip.directory({9, 9});
    const std::size_t behind = 46 + 5 + 4 + 16;  // entry, name and both sizes of the first one
    EXPECT_EQ(number(directory.bytes, behind, 4), 0x02014b50u);
    EXPECT_EQ(number(directory.bytes, behind + 20, 4), 7u);
    EXPECT_EQ(number(directory.bytes, behind + 42, 4), 0xffffffffu);
    EXPECT_EQ(number(directory.bytes, behind + 46 + 6 + 4, 8),
              static_cast<std::uint64_t>(zip.header(1, 9).offset));
    const std::size_t record = directory.bytes.size() - 22 - 20 - 56;
    EXPECT_EQ(number(directory.bytes, record, 4), 0x06064b50u);
    EXPECT_EQ(number(directory.bytes, record + 32, 8), 2u);
    EXPECT_EQ(number(directory.bytes, record + 48, 8),
              static_cast<std::uint64_t>(directory.offset));
    const std::size_t locator = directory.bytes.size() - 22 - 20;
    EXPECT_EQ(number(directory.bytes, locator, 4), 0x07064b50u);
    EXPECT_EQ(number(directory.bytes, locator + 8, 8),
              static_cast<std::uint64_t>(directory.offset) + record);
}

TEST(ZipTest, MoreThan65534MembersUseZip64) {
    ZipLayout zip;
    for (int i = 0; i < 65535; ++i) zip.add("m", 0);
    const std::string bytes = zip.directory(std::vector<std::uint32_t>(65535)).bytes;
    EXPECT_EQ(number(bytes, bytes.size() - 22 + 10, 2), 0xffffu);
    EXPECT_EQ(number(bytes, bytes.size() - 22 - 20 - 56 + 32, 8), 65535u);
}

}  // namespace
}  // namespace fullshard::checkpoint
