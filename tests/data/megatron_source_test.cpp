#include "data/file_case.h"
#include "data/token_files.h"
#include "data/toy_source.h"

#include <vector>

namespace fullshard::data {
namespace {

using Tokens = std::vector<std::int64_t>;

class MegatronSource : public FileCase {
  protected:
    std::shared_ptr<const TokenSource> open(const std::string& index, const std::string& bin,
                                            std::int64_t vocab_size = 1000) const {
        write("set.idx", index);
        write("set.bin", bin);
        return open_megatron(folder_ / "set", vocab_size);
    }
    void expect_refused(const std::string& index, const std::string& bin,
                        const std::vector<std::string>& parts) const {
        expect_data_error([&] { open(index, bin); }, parts);
    }
};

TEST_F(MegatronSource, HeaderByteByByte) {
    // Two documents of three sequences: [11 12] [13], [14 15].
    const std::string index(
        "MMIDIDX\0\0"
        "\x01\0\0\0\0\0\0\0"  // version
        "\x08"                // 16-bit unsigned
        "\x03\0\0\0\0\0\0\0"  // sequences
        "\x03\0\0\0\0\0\0\0"  // document entries
        "\x02\0\0\0\x01\0\0\0\x02\0\0\0"
        "\0\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0"
        "\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0",
        34 + 12 + 24 + 24);
    const std::string bin("\x0b\0\x0c\0\x0d\0\x0e\0\x0f\0", 10);
    const auto source = open(index, bin);
    EXPECT_EQ(all_tokens(*source), (Tokens{11, 12, 13, 14, 15}));
    const auto documents = source->documents();
    EXPECT_EQ(Tokens(documents.begin(), documents.end()), (Tokens{0, 3}));
    EXPECT_EQ(source->locate(3), (folder_ / "set.bin").string() + ", byte 6");
    EXPECT_EQ(megatron_index(8, 2, {2, 1, 2}, {0, 2, 3}), index);
}

TEST_F(MegatronSource, EveryIntegerType) {
    const std::vector<std::pair<int, int>> code_and_width{{1, 1}, {2, 1}, {3, 2},
                                                          {4, 4}, {5, 8}, {8, 2}};
    for (const auto& [code, width] : code_and_width) {
        const auto source = open(megatron_index(code, width, {3, 1}, {0, 1, 2}),
                                 little_endian({100, 7, 0, 127}, width));
        EXPECT_EQ(all_tokens(*source), (Tokens{100, 7, 0, 127})) << code;
    }
    // Beyond 127 and 32767 signed types are negative: outside any vocabulary.
    expect_data_error(
        [&] {
            all_tokens(*open(megatron_index(2, 1, {1}, {0, 1}), "\xff"));
        },
        {"token -1", "byte 0"});
}

TEST_F(MegatronSource, FloatingPointTypesAreNoTokens) {
    expect_refused(megatron_index(6, 8, {1}, {0, 1}), std::string(8, '\0'),
                   {"set.idx", "byte 17", "floating-point"});
    expect_refused(megatron_index(7, 4, {1}, {0, 1}), std::string(4, '\0'), {"floating-point"});
    expect_refused(megatron_index(9, 4, {1}, {0, 1}), std::string(4, '\0'), {"type code 9"});
    expect_refused(megatron_index(0, 4, {1}, {0, 1}), std::string(4, '\0'), {"type code 0"});
}

TEST_F(MegatronSource, EmptyDocumentsAndSequencesHaveNoPartInIt) {
    const auto source = open(megatron_index(1, 1, {0, 2, 0, 3, 0}, {0, 1, 1, 3, 4, 5}), "abcde");
    const auto documents = source->documents();
    EXPECT_EQ(Tokens(documents.begin(), documents.end()), (Tokens{0, 2}));
}

TEST_F(MegatronSource, ThePathMayNameEitherFile) {
    open(megatron_index(1, 1, {2}, {0, 1}), "ab");
    for (const char* name : {"set", "set.bin", "set.idx"})
        EXPECT_EQ(all_tokens(*open_megatron(folder_ / name, 256)), (Tokens{'a', 'b'})) << name;
    expect_data_error([&] { open_megatron(folder_ / "set.v1", 256); }, {"set.v1.bin"});
}

TEST_F(MegatronSource, DamageIsNamedWithFileAndByte) {
    const auto good = megatron_index(8, 2, {2, 1}, {0, 2});
    const std::string bin(6, '\0');
    auto bad = good;
    bad[0] = 'X';
    expect_refused(bad, bin, {"set.idx", "byte 0", "unknown kind"});
    expect_refused(llmc_tokens16({1}), bin, {"token file of llm.c"});
    bad = good;
    bad[9] = 2;
    expect_refused(bad, bin, {"byte 9", "version 2"});
    expect_refused(good.substr(0, 20), bin, {"byte 20", "cut off"});
    expect_refused(good.substr(0, good.size() - 8), bin, {"byte 26"});
    expect_refused(good + "x", bin, {"byte 26"});
    bad = good;
    bad.replace(18, 8, little_endian(std::int64_t{1} << 61, 8));
    expect_refused(bad, bin, {"byte 18", "2305843009213693952 sequences"});
    bad.replace(18, 8, little_endian(-1, 8));
    expect_refused(bad, bin, {"byte 18", "18446744073709551615 sequences"});
    expect_refused(megatron_index(8, 2, {2, -1}, {0, 2}), bin, {"byte 38", "-1 tokens"});
    expect_refused(good, bin.substr(0, 4), {"byte 38", "sequence 1 has 1 tokens", "cut off"});
    expect_refused(good, bin + "xx", {"8 bytes", "describes 6"});
    bad = good;
    bad.replace(34 + 8 + 8, 8, little_endian(6, 8));
    expect_refused(bad, bin, {"byte 50", "sequence 1 begins at byte 6", "ends at 4"});
    expect_refused(megatron_index(8, 2, {2, 1}, {1, 2}), bin, {"byte 58", "document 0"});
    expect_refused(megatron_index(8, 2, {2, 1}, {0, 1}), bin, {"byte 66", "sequence 1 of 2"});
    expect_refused(megatron_index(8, 2, {2, 1}, {0, 2, 1}), bin, {"byte 74", "document 2"});
    expect_refused(megatron_index(8, 2, {2, 1}, {0, 3}), bin, {"byte 66", "sequence 3 of 2"});
    expect_refused(megatron_index(8, 2, {}, {0}), "", {"no tokens"});
}

}  // namespace
}  // namespace fullshard::data
