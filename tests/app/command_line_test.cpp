#include "app/command_line.h"

#include "base/build_info.h"
#include "base/error.h"
#include "config/render.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fullshard::app {
namespace {

using Words = std::vector<std::string>;

std::string answer(const Words& words) {
    return immediate_answer(words).value_or("no answer");
}

/// The message of the UsageError, empty when the words are a command.
std::string refusal(const Words& words) {
    try {
        parse_command(words);
    } catch (const UsageError& error) {
        return error.what();
    }
    return {};
}

TEST(ImmediateAnswer, HelpTellsUseAndExitCodes) {
    const std::string help = answer({"--help"});
    EXPECT_NE(help.find("usage: fullshard train DECK [--section.key value ...]"),
              std::string::npos);
    EXPECT_NE(help.find("exit codes: 0 done"), std::string::npos);
    EXPECT_EQ(answer({}), "no answer");  // wrong use, not a request for help
    EXPECT_EQ(answer({"-h"}), help);
    EXPECT_EQ(answer({"train", "--help"}), help);
}

TEST(ImmediateAnswer, VersionTellsWhatWasBuilt) {
    const std::string version = answer({"--version"});
    for (const std::string_view part :
         {build_info().version, build_info().git_hash, build_info().build_type,
          build_info().compiler, build_info().standard, build_info().flags}) {
        EXPECT_FALSE(part.empty());
        EXPECT_NE(version.find(part), std::string::npos) << part << " is not in: " << version;
    }
}

TEST(ImmediateAnswer, KeysAsTextAndAsMarkdown) {
    EXPECT_EQ(answer({"--list-keys"}), config::list_keys());
    EXPECT_EQ(answer({"--list-keys=markdown"}), config::keys_markdown());
}

TEST(ImmediateAnswer, NoneForACommand) {
    EXPECT_FALSE(immediate_answer(Words{"train", "a.ini"}).has_value());
    EXPECT_FALSE(immediate_answer(Words{"train", "a.ini", "--run.dir", "help"}).has_value());
    EXPECT_FALSE(immediate_answer(Words{"--versions"}).has_value());
}

TEST(ParseCommand, SplitsDeckAndKeys) {
    const Words words{"train", "a.ini", "--train.steps", "3", "--run.dir=x"};
    const Command command = parse_command(words);
    EXPECT_EQ(command.name, CommandName::kTrain);
    EXPECT_EQ(command.deck, "a.ini");
    EXPECT_EQ(command.words, (Words{"--train.steps", "3", "--run.dir=x"}));
    EXPECT_TRUE(parse_command(Words{"train", "a.ini"}).words.empty());
    EXPECT_EQ(parse_command(Words{"eval", "a.ini"}).name, CommandName::kEval);
}

TEST(ParseCommand, RefusesOtherWordsWithTheRightUse) {
    EXPECT_NE(
        refusal({"trian", "a.ini"}).find("unknown command 'trian'; use: fullshard train|eval"),
        std::string::npos);
    EXPECT_NE(refusal({"a.ini"}).find("unknown command 'a.ini'"), std::string::npos);
    EXPECT_NE(refusal({}).find("unknown command ''"), std::string::npos);
    EXPECT_NE(refusal({"train"}).find("train needs a deck"), std::string::npos);
    EXPECT_NE(refusal({"train", "--train.steps", "3"}).find("train needs a deck"),
              std::string::npos);
}

TEST(ParseCommand, DoctorNeedsNoDeck) {
    const Command with = parse_command(Words{"doctor", "a.ini", "--run.dir", "x"});
    EXPECT_EQ(with.name, CommandName::kDoctor);
    EXPECT_EQ(with.deck, "a.ini");
    EXPECT_EQ(with.words, (Words{"--run.dir", "x"}));
    const Command without = parse_command(Words{"doctor", "--run.dir", "x"});
    EXPECT_EQ(without.deck, "");
    EXPECT_EQ(without.words, (Words{"--run.dir", "x"}));
    EXPECT_TRUE(parse_command(Words{"doctor"}).words.empty());
}

TEST(ParseCommand, PrintUnitsIsNoKey) {
    EXPECT_FALSE(parse_command(Words{"train", "a.ini"}).print_units);
    const Command command =
        parse_command(Words{"eval", "a.ini", "--shard.slots", "3", "--print-units"});
    EXPECT_TRUE(command.print_units);
    EXPECT_EQ(command.words, (Words{"--shard.slots", "3"}));
}

TEST(ParseCommand, PrintWorldSizesIsOfTraining) {
    EXPECT_FALSE(parse_command(Words{"train", "a.ini"}).print_world_sizes);
    const Command command =
        parse_command(Words{"train", "a.ini", "--print-world-sizes", "--run.dir", "b"});
    EXPECT_TRUE(command.print_world_sizes);
    EXPECT_EQ(command.words, (Words{"--run.dir", "b"}));
    EXPECT_EQ(parse_command(Words{"eval", "a.ini", "--print-world-sizes"}).words,
              (Words{"--print-world-sizes"}));
}

}  // namespace
}  // namespace fullshard::app
