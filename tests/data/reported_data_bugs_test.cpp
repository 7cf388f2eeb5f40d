// Bugs that users of other trainers reported: symptom in the name, report in the comment.
#include "base/error.h"
#include "data/file_case.h"
#include "data/loader.h"
#include "data/prefetching_loader.h"
#include "data/token_files.h"
#include "data/toy_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <vector>

namespace fullshard::data {
namespace {

using Tokens = std::vector<std::int64_t>;
class ReportedDataBugs : public FileCase {};

/// A file of `size` bytes that starts with `head` and ends with `tail`; a hole lies between.
void write_sparse(const std::filesystem::path& path, std::int64_t size, const std::string& head,
                  const std::string& tail) {
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ASSERT_GE(file, 0);
    EXPECT_EQ(ftruncate(file, size), 0);
    EXPECT_EQ(pwrite(file, head.data(), head.size(), 0), std::ssize(head));
    EXPECT_EQ(pwrite(file, tail.data(), tail.size(), size - std::ssize(tail)), std::ssize(tail));
    EXPECT_EQ(close(file), 0);
}

// karpathy/llm.c#828, EleutherAI/gpt-neox#835: offsets and indices were cast to int.
TEST_F(ReportedDataBugs, FilesBeyondFourGigabytesAreReadAtTheWrongPlace) {
    const std::int64_t tokens = 1'300'000'000;
    write_sparse(folder_ / "big.bin", 1024 + 4 * tokens, llmc_header(20240801, 7, tokens),
                 little_endian({70001, 70002, 70003}, 4));
    const auto source = open_llmc(folder_ / "big.bin", 128256);
    ASSERT_EQ(source->size(), tokens);
    const Windows windows(source, {0, tokens}, 1000, TargetRule::kNext);
    Tokens inputs(1000), targets(1000);
    EXPECT_EQ(windows.read(windows.count() - 1, inputs, targets), 999);
    EXPECT_EQ(inputs.back(), 70003);
    EXPECT_EQ(targets[998], 70003);
    EXPECT_EQ(source->locate(tokens - 1), (folder_ / "big.bin").string() + ", byte 5200001020");

    write_sparse(folder_ / "set.bin", 6'000'000'000, "", little_endian({40001, 40002}, 2));
    write("set.idx", megatron_index(8, 2, {1'500'000'000, 1'499'999'999, 1}, {0, 1, 3}));
    const auto megatron = open_megatron(folder_ / "set", 65536);
    ASSERT_EQ(megatron->size(), 3'000'000'000);
    Tokens last(2);
    megatron->read(2'999'999'998, last);
    EXPECT_EQ(last, (Tokens{40001, 40002}));
    EXPECT_EQ(megatron->documents()[1], 1'500'000'000);
}

// The same reports: arithmetic of samples with 2^40 tokens.
TEST_F(ReportedDataBugs, SamplesOfTwoToTheFortyTokensAreNumberedWrongly) {
    const std::int64_t samples = std::int64_t{1} << 40;
    for (const bool shuffle : {true, false}) {
        const Sampler sampler(1, samples, shuffle);
        for (const std::int64_t index :
             {std::int64_t{0}, samples - 1, 7 * samples + 3, (samples << 20) - 1}) {
            const std::int64_t sample = sampler.sample(index);
            EXPECT_GE(sample, 0);
            EXPECT_LT(sample, samples);
            EXPECT_EQ(sampler.place(index / samples, sample), index % samples);
        }
    }
}

// karpathy/llm.c#613, #599, #321, build-nanogpt#109: the last samples of a shard were lost, or
// ranks read some windows twice and others never.
TEST_F(ReportedDataBugs, SamplesAtTheEndOfAShardAreLostOrReadTwice) {
    for (std::int64_t n = 2; n <= 40; ++n) {
        // The same tokens 0, 1, ... in one to three shards.
        for (std::int64_t shards = 1; shards <= 3; ++shards) {
            for (std::int64_t s = 0; s < 3; ++s) {
                Tokens part;
                for (std::int64_t t = n * s / shards; s < shards && t < n * (s + 1) / shards; ++t)
                    part.push_back(t);
                write("shard_" + std::to_string(s) + ".bin", llmc_tokens16(part));
            }
            const auto source = open_llmc(folder_, 1000);
            for (const std::int64_t sequence : {1, 3, 4}) {
                const Windows windows(source, {0, n}, sequence, TargetRule::kNext);
                for (std::int64_t world = 1; world <= 5; ++world) {
                    const TrainingLoader loader(windows, {1, world}, 5, true);
                    // One epoch, and what is left of the step that ends it.
                    std::map<std::int64_t, std::int64_t> targets;
                    std::int64_t index = 0;
                    TokenBatch batch;
                    for (std::int64_t step = 0; index < windows.count(); ++step) {
                        for (std::int64_t rank = 0; rank < world; ++rank, ++index) {
                            if (index >= windows.count()) continue;
                            loader.load(step, micro_batch_index(0, rank, world), batch);
                            for (std::size_t t = 0; t < batch.targets.size(); ++t) {
                                if (batch.targets[t] < 0) continue;
                                EXPECT_EQ(batch.targets[t], batch.tokens[t] + 1);
                                ++targets[batch.targets[t]];
                            }
                        }
                    }
                    ASSERT_EQ(std::ssize(targets), n - 1) << n << " tokens, world " << world;
                    for (const auto& [token, times] : targets) ASSERT_EQ(times, 1) << token;
                }
            }
        }
    }
}

// pytorch/torchtitan#811, #816: the loader's state was tied to the number of ranks.
TEST_F(ReportedDataBugs, ADifferentNumberOfRanksCannotGoOnMidEpoch) {
    const auto source = toy_documents({1001});
    const auto samples_of = [&](std::int64_t world, std::int64_t first, std::int64_t end) {
        const std::int64_t accumulations = 12 / world;
        const TrainingLoader loader(Windows(source, {0, 1001}, 4, TargetRule::kNext), {1, 12}, 3,
                                    true);
        std::map<std::pair<std::int64_t, std::int64_t>, Tokens> parts;
        for (std::int64_t rank = 0; rank < world; ++rank) {
            PrefetchingLoader batches(loader, {rank, world, accumulations, first, end}, 2);
            for (std::int64_t step = first; step < end; ++step)
                for (std::int64_t a = 0; a < accumulations; ++a)
                    parts[{step, micro_batch_index(a, rank, world)}] = batches.load(step, a).tokens;
        }
        return parts;
    };
    const auto undisturbed = samples_of(4, 0, 40);
    for (const std::int64_t world : {1, 2, 3, 6}) {
        auto parts = samples_of(4, 0, 17);
        parts.merge(samples_of(world, 17, 40));
        EXPECT_EQ(parts, undisturbed) << world;
    }
}

// InfiniTrain ignores the version of a file, LBANN#1212 goes on with other data: each mistake is
// told from the others.
TEST_F(ReportedDataBugs, AFileOfTheWrongKindIsReadAsIfItWereTokens) {
    const auto good = llmc_tokens16({1, 2, 3, 4});
    const auto message = [&](const std::string& bytes) {
        const auto path = write("x.bin", bytes);
        return data_error([&] { all_tokens(*open_llmc(path, 5)); });
    };
    auto other_magic = good, other_version = good, large_token = good;
    other_magic.replace(0, 4, little_endian(20240326, 4));
    other_version.replace(4, 4, little_endian(2, 4));
    large_token.replace(1024 + 2, 2, little_endian(5, 2));
    const std::map<std::string, std::string> expected{
        {message(good.substr(0, good.size() - 2)), "cut off"},
        {message(good + "xx"), "too long"},
        {message(good.substr(0, 500)), "too few"},
        {message(other_magic), "GPT-2 model"},
        {message(other_version), "version 2"},
        {message(large_token), "token 5 at " + (folder_ / "x.bin").string() + ", byte 1026"}};
    EXPECT_EQ(expected.size(), 6U) << "every mistake has a text of its own";
    for (const auto& [text, part] : expected) EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST_F(ReportedDataBugs, SwappedFilesGoUnnoticedOnResume) {
    const auto first = llmc_tokens16({1, 2, 3}), second = llmc_tokens16({4, 5, 6});
    write("a.bin", first);
    write("b.bin", second);
    const auto before = fingerprint(*open_llmc(folder_, 10));
    EXPECT_EQ(fingerprint(*open_llmc(folder_, 10)), before);
    write("a.bin", second);
    write("b.bin", first);
    EXPECT_NE(fingerprint(*open_llmc(folder_, 10)), before);
}

}  // namespace
}  // namespace fullshard::data
