// Sections [optimizer.group.NAME]: the one list that decks have.
#include "config/checks.h"
#include "config/compare.h"
#include "config/render.h"
#include "support.h"

#include <gtest/gtest.h>

namespace fullshard::config {
namespace {

using Groups = std::vector<ParameterGroup>;

TEST(ParameterGroups, ComeInTheOrderOfTheDeck) {
    const Deck deck = parsed(
        "[optimizer]\nlr = 0.5\n"
        "[optimizer.group.no-decay]\nparameters = *.bias, layers.?.norm*\nweight_decay = 0\n"
        "[optimizer.group.head]\nparameters = head.*\nlr = 0.1  # slower\n"
        "[optimizer.group.all]\nparameters = *\nfrozen = on\n");
    EXPECT_EQ(deck.optimizer.lr, 0.5);
    EXPECT_EQ(
        deck.optimizer.groups,
        (Groups{{.name = "no-decay", .patterns = {"*.bias", "layers.?.norm*"}, .weight_decay = 0.0},
                {.name = "head", .patterns = {"head.*"}, .lr = 0.1},
                {.name = "all", .patterns = {"*"}, .frozen = true}}));
    EXPECT_EQ(origin_of(deck, "optimizer.group.head.lr"), "t.ini:8");
    EXPECT_EQ(origin_of(deck, "optimizer.group.head.weight_decay"), "default");
}

TEST(ParameterGroups, TheCommandLineChangesThemAndAddsMoreAtTheEnd) {
    const Deck deck = parsed("[optimizer.group.b]\nparameters = b\nlr = 1\n",
                             {"--optimizer.group.a.parameters=a*", "--optimizer.group.b.lr", "0.25",
                              "--optimizer.group.a.lr", "3", "--optimizer.group.a.lr", "auto"});
    EXPECT_EQ(deck.optimizer.groups, (Groups{{.name = "b", .patterns = {"b"}, .lr = 0.25},
                                             {.name = "a", .patterns = {"a*"}}}));
    EXPECT_EQ(origin_of(deck, "optimizer.group.b.lr"), "command line");
}

TEST(ParameterGroups, MistakesAreReportedAtOnceWithRemedies) {
    const std::string error = error_of(
        "[optimizer.group.a]\n"
        "parameters = x y\n"
        "lrr = 1\n"
        "lr = fast\n"
        "momentum = 0.9\n"
        "[optimizer.gruop.b]\n"
        "frozen = on\n"
        "[optimizer.group]\n"
        "lr = 1\n"
        "[optimizer.group.c.d]\n"
        "lr = 1\n"
        "[optimizer.group.e]\n"
        "frozen = on\n"
        "frozen = off\n",
        {"--optimizer.group.f.weight_dcay", "1"});
    EXPECT_EQ(
        error,
        "10 mistakes in the input:\n"
        "  t.ini:2: optimizer.group.a.parameters = x y: has a blank, a '#' or a control character "
        "inside a name (patterns; allowed: names with * and ?, separated by commas); separate "
        "names by commas\n"
        "  t.ini:3: optimizer.group.a.lrr = 1: unknown key; did you mean optimizer.group.a.lr?\n"
        "  t.ini:4: optimizer.group.a.lr = fast: not a finite number (real; allowed: x >= 0, or "
        "auto); write it as 0.001 or 1e-3, without unit\n"
        "  t.ini:5: optimizer.group.a.momentum = 0.9: unknown key; [optimizer.group.a] has "
        "parameters, lr, weight_decay, frozen\n"
        "  t.ini:7: optimizer.gruop.b.frozen = on: unknown key; did you mean "
        "optimizer.group.b.frozen?\n"
        "  t.ini:9: optimizer.group.lr = 1: unknown key; write optimizer.group.NAME.KEY with a "
        "name of your choice for NAME\n"
        "  t.ini:11: optimizer.group.c.d.lr = 1: unknown key; use letters, digits, '_' and '-' for "
        "NAME in optimizer.group.NAME\n"
        "  t.ini:14: optimizer.group.e.frozen = off: set twice in this deck; keep this line or "
        "t.ini:13\n"
        "  command line: optimizer.group.f.weight_dcay = 1: unknown key; did you mean "
        "optimizer.group.f.weight_decay?\n"
        "  contradiction: optimizer.group.e.parameters = nothing (default): the group has no "
        "parameters; set optimizer.group.e.parameters to names such as *.bias, or drop the group\n"
        "fullshard --list-keys prints every key with type, range and meaning");
}

// Were a group judged whose `parameters` were refused, the user would be told of two mistakes.
TEST(ParameterGroups, RefusedParametersAreNotMissingOnes) {
    const std::string error = error_of("[optimizer.group.a]\nlr = 1\nparameters = a,,b\n");
    EXPECT_TRUE(contains(error, "one mistake")) << error;
}

TEST(ParameterGroups, ComeBackFromTheEffectiveDeck) {
    Deck deck;
    deck.optimizer.groups = {
        {.name = "z", .patterns = {"*.bias", "a?"}, .lr = 0.1 + 0.2, .weight_decay = 0.0},
        {.name = "a", .patterns = {"*"}, .frozen = true}};
    const std::string text = effective_deck(deck);
    EXPECT_EQ(parse(text, "effective.ini", {}), deck) << text;
    EXPECT_TRUE(contains(text, "\n[optimizer.group.z]\nparameters = *.bias, a? ")) << text;
    EXPECT_FALSE(contains(text, "NAME")) << text;
}

TEST(ParameterGroups, AreDocumentedOnceUnderAPlaceholder) {
    for (const std::string& text : {list_keys(), keys_markdown()}) {
        EXPECT_TRUE(contains(text, "[optimizer.group.NAME]"));
        const std::size_t first = text.find("optimizer.group.NAME.frozen");
        ASSERT_NE(first, std::string::npos);
        EXPECT_EQ(text.find("optimizer.group.NAME.frozen", first + 1), std::string::npos);
    }
}

TEST(Differences, OfPlainKeys) {
    Deck after;
    EXPECT_TRUE(differences(after, after).empty());
    after.train.steps = 7;
    after.data.path = "some/file";
    const auto found = differences(Deck{}, after);
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].key, "data.path");
    EXPECT_EQ(found[0].before, "nothing");
    EXPECT_EQ(found[0].after, "some/file");
    EXPECT_EQ(found[1].key, "train.steps");
    EXPECT_EQ(found[1].before, "100");
    EXPECT_EQ(found[1].after, "7");
}

std::vector<std::string> changes(const Groups& before, const Groups& after) {
    Deck old_deck;
    Deck new_deck;
    old_deck.optimizer.groups = before;
    new_deck.optimizer.groups = after;
    std::vector<std::string> result;
    for (const Difference& difference : differences(old_deck, new_deck)) {
        result.push_back(difference.key + ": " + difference.before + " -> " + difference.after);
    }
    return result;
}

TEST(Differences, OfGroups) {
    using Lines = std::vector<std::string>;
    const ParameterGroup a{.name = "a", .patterns = {"x", "y"}, .lr = 0.5};
    const ParameterGroup b{.name = "b", .patterns = {"*"}};
    ParameterGroup frozen_a = a;
    frozen_a.frozen = true;
    EXPECT_EQ(changes({a, b}, {a, b}), Lines{});
    EXPECT_EQ(changes({a, b}, {b, a}), Lines{"optimizer.group: a, b -> b, a"});
    EXPECT_EQ(changes({a, b}, {frozen_a, b}), Lines{"optimizer.group.a.frozen: off -> on"});
    EXPECT_EQ(changes({}, {a}), (Lines{"optimizer.group: nothing -> a",
                                       "optimizer.group.a.parameters: nothing -> x, y",
                                       "optimizer.group.a.lr: auto -> 0.5"}));
    EXPECT_EQ(changes({b}, {}), (Lines{"optimizer.group: b -> nothing",
                                       "optimizer.group.b.parameters: * -> nothing"}));
}

}  // namespace
}  // namespace fullshard::config
