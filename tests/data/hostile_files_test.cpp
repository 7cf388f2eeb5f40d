// Damaged headers are refused or read; they neither crash nor make the program allocate more than
// the file could be worth: the binary is linked with support/allocation_limit.cpp.
#include "base/error.h"
#include "base/rng.h"
#include "data/file_case.h"
#include "data/hdf5_file.h"
#include "data/hdf5_source.h"
#include "data/jsonl_source.h"
#include "data/token_files.h"
#include "data/token_table.h"
#include "data/toy_source.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>

namespace fullshard::data {
namespace {

constexpr std::array<std::int64_t, 12> kExtremes{0,
                                                 1,
                                                 -1,
                                                 2,
                                                 255,
                                                 65536,
                                                 0x7fffffff,
                                                 0x80000000,
                                                 0xffffffff,
                                                 1 << 24,
                                                 std::numeric_limits<std::int64_t>::max(),
                                                 std::numeric_limits<std::int64_t>::min()};

/// The `number`-th way to damage `bytes`, most often in the first `header` of them.
std::string damaged(std::string bytes, std::size_t header, std::uint64_t number) {
    const RandomStream random(mix(stable_hash("damage"), number));
    std::uint64_t draw = 0;
    const auto below = [&](std::uint64_t bound) { return random.below(draw++, bound); };
    for (std::uint64_t times = 1 + below(3); times > 0 && !bytes.empty(); --times) {
        const bool anywhere = below(4) == 0;
        const auto at = below(anywhere ? bytes.size() : std::min(header, bytes.size()));
        switch (below(8)) {
            case 0:
                bytes.resize(below(4) == 0 ? below(bytes.size()) : bytes.size() - 1);
                break;
            case 1:
                bytes += std::string(1 + below(9), static_cast<char>(below(256)));
                break;
            case 2:
            case 3: {
                const auto value = kExtremes[below(kExtremes.size())];
                const auto field = little_endian(value, below(2) == 0 ? 4 : 8);
                bytes.replace(at, std::min(field.size(), bytes.size() - at),
                              field.substr(0, bytes.size() - at));
                break;
            }
            case 4:
                bytes.erase(at, 1 + below(8));
                break;
            default:
                bytes[at] = static_cast<char>(below(256));
        }
    }
    return bytes;
}

/// Where files are made in memory: thousands of them take a minute on a disk.
std::filesystem::path memory_folder() {
    const std::filesystem::path folder = "/dev/shm";
    return access(folder.c_str(), W_OK) == 0 ? folder : std::filesystem::path(testing::TempDir());
}

class HostileFiles : public FileCase {
  protected:
    HostileFiles() : FileCase(memory_folder()) {}

    /// Damages `good` in `cases` ways. `open` gets the bytes and either throws DataError or reads.
    template <typename Open>
    void expect_refused_or_read(const std::string& good, std::size_t header, std::uint64_t cases,
                                Open open) const {
        std::uint64_t refused = 0, read = 0;
        for (std::uint64_t number = 0; number < cases; ++number) {
            try {
                open(damaged(good, header, number));
                ++read;
            } catch (const DataError& error) {
                ++refused;
                ASSERT_NE(std::string_view(error.what()), "");
            } catch (const std::exception& error) {
                FAIL() << "damage " << number << ": " << error.what();
            }
        }
        RecordProperty("refused", std::to_string(refused));
        EXPECT_GT(refused, cases / 10);
        EXPECT_GT(read, cases / 1000) << "no damage was harmless: the test proves little";
    }
};

void read_all(const TokenSource& source) {
    all_tokens(source);
    std::vector<std::uint8_t> mask(static_cast<std::size_t>(source.size()));
    source.read_loss_mask(0, mask);
    static_cast<void>(source.locate(source.size() - 1));
    for (const std::int64_t start : source.documents()) {
        ASSERT_GE(start, 0);
        ASSERT_LT(start, source.size());
    }
}

TEST_F(HostileFiles, TokensOfLlmC) {
    expect_refused_or_read(
        llmc_tokens16({1, 2, 3, 4, 5, 6}), 12, 10000,
        [&](const std::string& bytes) { read_all(*open_llmc(write("x.bin", bytes), 60000)); });
    expect_refused_or_read(llmc_tokens32({1, 2, 3, 4}), 12, 2000, [&](const std::string& bytes) {
        read_all(*open_llmc(write("x.bin", bytes), 60000));
    });
}

TEST_F(HostileFiles, IndexOfMegatron) {
    write("x.bin", std::string(12, '\1'));
    expect_refused_or_read(megatron_index(8, 2, {2, 3, 1}, {0, 1, 3}), 34, 10000,
                           [&](const std::string& bytes) {
                               write("x.idx", bytes);
                               read_all(*open_megatron(folder_ / "x", 60000));
                           });
}

TEST_F(HostileFiles, TokenTable) {
    const auto good = llmc_header(20240328, 2, 5, 4) + std::string("\1a\2bc\0\3def\1g", 12);
    expect_refused_or_read(good, 16, 10000, [&](const std::string& bytes) {
        const auto table = TokenTable::read(write("t", bytes));
        for (std::int64_t token = -1; token <= table.vocab_size(); ++token)
            static_cast<void>(table.bytes_of(token));
    });
}

TEST_F(HostileFiles, Jsonl) {
    const std::string good =
        "{\"prompt\": \"a\\n\", \"answer\": \"b\"}\n{\"tokens\": [1, 2, 30]}\n"
        "{\"prompt_tokens\": [], \"answer_tokens\": [4]}\n{\"text\": \"x\"}\n";
    expect_refused_or_read(good, good.size(), 10000, [&](const std::string& bytes) {
        JsonlSource source("x", {.vocab_size = 256});
        source.append("x.jsonl", bytes);
        if (source.size() > 0) read_all(source);
    });
    // Nesting as deep as the file is long must not use up the stack.
    for (const char* open : {"[", "{\"a\":"}) {
        std::string deep;
        while (deep.size() < 200'000) deep += open;
        expect_data_error([&] { JsonlSource("x", {}).append("x.jsonl", deep); }, {"line 1"});
    }
}

// HDF5 parses its headers itself, and its release 1.10.8 reads freed memory in some damaged ones
// (H5Aexists): bytes that it reads are not ours to damage. What we check is what they describe.
TEST_F(HostileFiles, ContentOfHdf5) {
    const std::array types{H5T_STD_U8LE,  H5T_STD_U16LE, H5T_STD_I32LE, H5T_STD_I64LE,
                           H5T_STD_U64LE, H5T_STD_U16BE, H5T_IEEE_F32LE};
    int refused = 0, read = 0;
    for (std::uint64_t number = 0; number < 2000; ++number) {
        const RandomStream random(mix(stable_hash("content"), number));
        std::uint64_t draw = 0;
        const auto below = [&](std::uint64_t bound) {
            return static_cast<std::int64_t>(random.below(draw++, bound));
        };
        const auto values = [&](std::int64_t count, std::int64_t least, std::uint64_t bound) {
            std::vector<std::int64_t> drawn;
            while (std::ssize(drawn) < count) drawn.push_back(least + below(bound));
            return drawn;
        };
        const std::int64_t tokens = below(12);
        Hdf5Content content{.tokens = values(tokens, below(9) == 0 ? -1 : 0, 120),
                            .token_type = types[static_cast<std::size_t>(below(types.size()))]};
        if (below(2) == 0) {
            auto documents = values(below(5), below(9) == 0 ? -2 : 0, 12);
            if (below(4) != 0) std::ranges::sort(documents);
            if (!documents.empty() && below(4) != 0) documents.front() = 0;
            content.documents = documents;
        }
        if (below(2) == 0) content.loss_mask = values(below(5) == 0 ? below(12) : tokens, 0, 3);
        if (below(3) == 0) content.vocab_size = below(200) - 20;
        if (tokens >= 3 && below(5) == 0) content.chunk = 3;
        const auto path = folder_ / "x.h5";
        write_hdf5(path, content);
        if (below(4) == 0) {
            const auto size = std::filesystem::file_size(path);
            std::filesystem::resize_file(
                path, static_cast<std::uint64_t>(below(static_cast<std::uint64_t>(size))));
        }
        try {
            read_all(*open_hdf5(path, 100));
            ++read;
        } catch (const DataError&) {
            ++refused;
        } catch (const std::exception& error) {
            FAIL() << "content " << number << ": " << error.what();
        }
    }
    EXPECT_GT(refused, 200);
    EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace fullshard::data
