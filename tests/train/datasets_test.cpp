#include "train/datasets.h"

#include "base/error.h"
#include "base/rng.h"
#include "data/text_source.h"
#include "data/token_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::train {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<std::int64_t>;

class OpenData : public testing::Test {
  protected:
    void SetUp() override {
        fs::remove_all(folder_);
        fs::create_directories(folder_);
    }
    void TearDown() override { fs::remove_all(folder_); }

    fs::path write(const char* name, std::string_view bytes) const {
        std::ofstream(folder_ / name, std::ios::binary) << bytes;
        return folder_ / name;
    }
    /// A token file of llm.c: 16-bit tokens first, first + 1, ...
    fs::path write_llmc(const char* name, std::int64_t count, std::int64_t first) const {
        std::string bytes(1024, '\0');
        const auto put = [&](std::size_t at, std::int64_t value, std::size_t width) {
            for (std::size_t i = 0; i < width; ++i)
                bytes[at + i] = static_cast<char>((value >> (8 * i)) & 0xff);
        };
        put(0, 20240520, 4);
        put(4, 1, 4);
        put(8, count, 4);
        bytes.resize(bytes.size() + 2 * static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i)
            put(1024 + 2 * static_cast<std::size_t>(i), first + i, 2);
        return write(name, bytes);
    }

    const fs::path folder_ = fs::path(testing::TempDir()) /
                             (std::string("fullshard_data_") +
                              testing::UnitTest::GetInstance()->current_test_info()->name());
};

config::Data text_at(const fs::path& path) {
    config::Data data;
    data.source = config::Source::kText;
    data.path = path;
    data.sequence = 10;
    return data;
}

Tokens first_batch(const data::TrainingLoader& loader) {
    data::TokenBatch batch;
    loader.load(0, 0, batch);
    return batch.tokens;
}

TEST_F(OpenData, OneTextIsReadAsItAlwaysWas) {
    const auto path = write("a.txt", std::string(250, 'a') + std::string(253, 'b'));
    const Datasets datasets = open_data(text_at(path), 256, 7, 2, 3, 0);
    ASSERT_TRUE(datasets.training);
    // 50 windows of which 5 are held out; the remainder of three tokens stays at the end.
    const data::TrainingLoader expected(
        data::Windows(data::load_text(path), {0, 450}, 10, data::TargetRule::kNext), {2, 3},
        mix(7, 1), true);
    for (std::int64_t i = 0; i < 200; ++i)
        EXPECT_EQ(datasets.training->sample(i), expected.sample(i));
    EXPECT_EQ(first_batch(*datasets.training), first_batch(expected));
    ASSERT_EQ(datasets.validation.size(), 1U);
    EXPECT_EQ(datasets.validation.front().name, "text");
    EXPECT_EQ(datasets.validation.front().loader.windows().range(), (data::TokenRange{450, 53}));
    EXPECT_EQ(datasets.validation.front().unigram_entropy, 0.0) << "only b is held out";
    EXPECT_EQ(datasets.description,
              (std::vector{path.string() + ": 503 tokens, 45 sequences of 10 to train on (7.5 "
                                           "steps an epoch), 6 held out"}));
    EXPECT_TRUE(datasets.notes.empty());
    const auto two = open_data(text_at(path), 256, 7, 2, 3, 2);
    EXPECT_EQ(two.validation.front().loader.windows().range(), (data::TokenRange{450, 20}));
    EXPECT_EQ(two.fingerprint, datasets.fingerprint);
}

TEST_F(OpenData, SeveralSourcesAreMixedAndEvaluatedApart) {
    config::Data data;
    data.sequence = 10;
    data.sources = {
        {.name = "low", .kind = config::Source::kLlmc, .path = write_llmc("low.bin", 1000, 0)},
        {.name = "high",
         .kind = config::Source::kLlmc,
         .path = write_llmc("high.bin", 500, 2000),
         .validation_path = write_llmc("held.bin", 35, 3000),
         .weight = 3.0}};
    const Datasets datasets = open_data(data, 5000, 7, 4, 8, 0);
    ASSERT_EQ(datasets.training->sources().size(), 2U);
    EXPECT_EQ(datasets.training->windows(0).range().count, 900);
    EXPECT_EQ(datasets.training->windows(1).range().count, 500) << "all of its path";
    EXPECT_EQ(datasets.training->sources()[1].name, "high");
    std::int64_t of_high = 0;
    for (std::int64_t i = 0; i < 1024; ++i) of_high += datasets.training->sample(i).source;
    EXPECT_EQ(of_high, 768);
    ASSERT_EQ(datasets.validation.size(), 2U);
    EXPECT_EQ(datasets.validation[0].name, "low");
    EXPECT_EQ(datasets.validation[1].name, "high");
    EXPECT_EQ(datasets.validation[1].loader.windows().count(), 4);
    EXPECT_FALSE(datasets.validation[0].unigram_entropy) << "of text only";
    ASSERT_EQ(datasets.description.size(), 2U);
    EXPECT_EQ(datasets.description[1].find("high: " + (folder_ / "high.bin").string()), 0U)
        << datasets.description[1];

    data.sources[1].path = folder_ / "missing.bin";
    const Datasets held_out = open_data(data, 5000, 7, 4, 8, 0, Purpose::kEvaluation);
    EXPECT_FALSE(held_out.training);
    EXPECT_EQ(held_out.validation.size(), 2U);
    EXPECT_EQ(held_out.description.size(), 2U);
    EXPECT_THROW(open_data(data, 5000, 7, 4, 8, 0), DataError);
}

TEST_F(OpenData, ExamplesOfJsonlOneASequence) {
    config::Data data;
    data.source = config::Source::kJsonl;
    data.path = write("a.jsonl",
                      "{\"prompt\": \"ab\", \"answer\": \"cd\"}\n{\"text\": \"\"}\n"
                      "{\"prompt\": \"e\", \"answer\": \"f\"}\n{\"prompt\": \"g\", \"answer\": "
                      "\"h\"}\n");
    data.sequence = 6;
    data.packing = config::Packing::kNone;
    data.document_mask = true;
    data.document_end = 10;
    data.shuffle = false;
    data.validation_fraction = 0.3;
    const Datasets datasets = open_data(data, 256, 7, 1, 1, 0);
    data::TokenBatch batch;
    datasets.training->load(0, 0, batch);
    EXPECT_EQ(batch.tokens, (Tokens{'a', 'b', 'c', 'd', 10, 0}));
    EXPECT_EQ(batch.targets, (Tokens{-1, 'c', 'd', 10, -1, -1}));
    EXPECT_EQ(batch.positions, (Tokens{0, 1, 2, 3, 4, 0}));
    EXPECT_EQ(batch.documents, (Tokens{0, 0, 0, 0, 0, 1}));
    EXPECT_EQ(datasets.training->windows().count(), 2);
    ASSERT_EQ(datasets.validation.size(), 1U);
    EXPECT_EQ(datasets.validation.front().loader.windows().count(), 1);
    ASSERT_EQ(datasets.notes.size(), 1U);
    EXPECT_NE(datasets.notes.front().find("left out 1 lines"), std::string::npos);
}

TEST_F(OpenData, DocumentsThatATokenEnds) {
    auto data = text_at(write("a.txt", "first.second.third"));
    data.sequence = 8;
    data.packing = config::Packing::kNone;
    data.document_end = '.';
    data.validation_fraction = 0.0;
    const Datasets datasets = open_data(data, 256, 7, 1, 1, 0);
    EXPECT_EQ(datasets.training->windows().count(), 3);
    EXPECT_TRUE(datasets.validation.empty());
    EXPECT_TRUE(datasets.notes.empty());
    data.document_end = '#';
    const Datasets none = open_data(data, 256, 7, 1, 1, 0);
    EXPECT_EQ(none.training->windows().count(), 3) << "18 tokens as one document";
    ASSERT_EQ(none.notes.size(), 1U);
    EXPECT_NE(none.notes.front().find("data.document_end = 35"), std::string::npos);
}

TEST_F(OpenData, AnEmptyPathIsNamedByItsKey) {
    const auto message = [](const config::Data& data, Purpose purpose = Purpose::kTraining) {
        try {
            open_data(data, 256, 7, 1, 1, 0, purpose);
        } catch (const UsageError& error) {
            return std::string(error.what());
        }
        return std::string("no UsageError");
    };
    config::Data data = text_at("");
    EXPECT_NE(message(data).find("data.path is empty"), std::string::npos) << message(data);
    data.sources = {{.name = "books", .kind = config::Source::kHdf5}};
    EXPECT_NE(message(data).find("data.source.books.path is empty"), std::string::npos);
}

TEST_F(OpenData, TextIsNotTakenForTheTokensOfATokenizer) {
    const fs::path text = write("a.txt", std::string(100, 'x'));
    const fs::path examples = write("a.jsonl", R"({"prompt": "1+1=", "answer": "2 and no more"})");
    const fs::path numbers = write("b.jsonl", R"({"tokens": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]})");
    const auto open = [&](config::Source kind, const fs::path& path, std::int64_t vocab_size,
                          const fs::path& tokenizer) {
        config::Data data = text_at(path);
        data.source = kind;
        data.validation_fraction = 0.0;
        data.tokenizer = tokenizer;
        return open_data(data, vocab_size, 1, 1, 1, 0).notes;
    };
    EXPECT_TRUE(open(config::Source::kText, text, 256, {}).empty());
    EXPECT_EQ(open(config::Source::kText, text, 49152, {}).size(), 1u);
    EXPECT_THROW(open(config::Source::kText, text, 256, folder_), UsageError);
    EXPECT_EQ(open(config::Source::kJsonl, examples, 49152, {}).size(), 1u);
    EXPECT_THROW(open(config::Source::kJsonl, examples, 49152, folder_), UsageError);
    EXPECT_TRUE(open(config::Source::kJsonl, numbers, 49152, folder_).empty());
}

}  // namespace
}  // namespace fullshard::train
