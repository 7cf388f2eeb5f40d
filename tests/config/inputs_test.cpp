// The files of inputs/ against the program.
#include "base/files.h"
#include "config/batch.h"
#include "config/checks.h"
#include "config/render.h"
#include "support.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

namespace fullshard::config {
namespace {

const std::filesystem::path kInputs = FULLSHARD_INPUTS;

Deck deck_of(const std::filesystem::path& path) {
    return parse(read_file(path), path.filename().string(), {});
}

TEST(Inputs, ReadmeIsWhatTheProgramPrints) {
    EXPECT_EQ(read_file(kInputs / "README.md"), keys_markdown())
        << "inputs/README.md is generated: run `ninja -C build/release inputs_readme`";
}

TEST(Inputs, EveryDeckParsesWithoutWarningAndIsInTheReadme) {
    std::set<std::string> run_dirs;
    std::size_t decks = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kInputs)) {
        if (entry.path().extension() != ".ini") continue;
        SCOPED_TRACE(entry.path());
        ++decks;
        const Deck deck = deck_of(entry.path());
        EXPECT_TRUE(warnings(deck).empty());
        EXPECT_NO_THROW(resolve_batch(deck.train, 4));
        run_dirs.insert(deck.run.dir.string());
        EXPECT_TRUE(contains(keys_markdown(), "(" + entry.path().filename().string() + ")"));
        EXPECT_TRUE(read_file(entry.path()).starts_with("# "));
    }
    EXPECT_GE(decks, 3u);
    EXPECT_EQ(run_dirs.size(), decks) << "two decks write to one folder";
}

TEST(Inputs, SimpleTransformerHasTheStandardSizes) {
    const Deck deck = deck_of(kInputs / "simple_transformer.ini");
    EXPECT_EQ(deck.model, Model{});
    EXPECT_EQ(deck.model.vocab_size, 1000);
    EXPECT_EQ(deck.model.d_model, 256);
    EXPECT_EQ(deck.model.num_heads, 4);
    EXPECT_EQ(deck.model.num_layers, 3);
    EXPECT_EQ(deck.data.source, Source::kSynthetic);
    EXPECT_EQ(deck.data.sequence, 128);
    EXPECT_EQ(deck.data.synthetic_sequences, 100);
    EXPECT_EQ(deck.data.targets, Targets::kRolled);
    EXPECT_EQ(resolve_batch(deck.train, 1).micro_batch, 4);
    EXPECT_EQ(deck.optimizer.lr, 1e-3);
}

TEST(Inputs, TextIsACausalModelOfBytes) {
    const Deck deck = deck_of(kInputs / "text.ini");
    EXPECT_EQ(deck.model.vocab_size, 256);
    EXPECT_EQ(deck.model.attention, Attention::kCausal);
    EXPECT_EQ(deck.model.positions, Positions::kLearned);
    EXPECT_EQ(deck.data.source, Source::kText);
    EXPECT_FALSE(deck.data.path.empty());
    EXPECT_GT(deck.data.validation_fraction, 0.0);
}

}  // namespace
}  // namespace fullshard::config
