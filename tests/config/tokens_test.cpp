#include "config/tokens.h"

#include <gtest/gtest.h>

namespace fullshard::config {
namespace {

using Lines = std::vector<std::string>;

/// "origin key=value" of each assignment.
Lines assignments(const Tokens& tokens) {
    Lines lines;
    for (const auto& [key, value, origin, line] : tokens.assignments) {
        lines.push_back(origin + " " + key + "=" + value);
    }
    return lines;
}

/// "origin text" of each mistake.
Lines mistakes(const Tokens& tokens) {
    Lines lines;
    for (const Mistake& mistake : tokens.mistakes)
        lines.push_back(mistake.origin + " " + mistake.text);
    return lines;
}

TEST(TokenizeDeck, SectionsCommentsAndLineNumbers) {
    const Tokens tokens = tokenize_deck(
        "# heading\n"
        "run.seed = 1\n"
        "\n"
        "[model] # section\n"
        "  d_model=8   # inline\n"
        "\tnum_heads =2\r\n"
        "# d_ff = 3\n"
        "[ train ]\n"
        "[data]\n"
        "path = a=b c",
        "d");
    EXPECT_EQ(assignments(tokens), (Lines{"d:2 run.seed=1", "d:5 model.d_model=8",
                                          "d:6 model.num_heads=2", "d:10 data.path=a=b c"}));
    EXPECT_EQ(mistakes(tokens), Lines{});
}

TEST(TokenizeDeck, QuotesAroundTheWholeValueAreDropped) {
    const Tokens tokens = tokenize_deck("a = \" x \"\nb = 'y'\nc = \"\"\nd = p\"q\"r\ne =\n", "d");
    EXPECT_EQ(assignments(tokens),
              (Lines{"d:1 a= x ", "d:2 b=y", "d:3 c=", "d:4 d=p\"q\"r", "d:5 e="}));
    EXPECT_EQ(mistakes(tokens), Lines{});
}

TEST(TokenizeDeck, HalfQuotedValuesAreMistakes) {
    const Tokens tokens = tokenize_deck("a = \"x\nb = y'\nc = \"\nd = \"x # y\"\ne = \"z'\n", "d");
    EXPECT_EQ(assignments(tokens), Lines{});
    EXPECT_EQ(mistakes(tokens),
              (Lines{"d:1 a = \"x", "d:2 b = y'", "d:3 c = \"", "d:4 d = \"x", "d:5 e = \"z'"}));
}

TEST(TokenizeDeck, EveryMalformedLineIsReportedAndTheRestIsRead) {
    const Tokens tokens = tokenize_deck("[]\n[a\nword\n= 3\n; old style\n[s]\nk = 1\n[a=b\n", "d");
    EXPECT_EQ(assignments(tokens), (Lines{"d:7 s.k=1"}));
    EXPECT_EQ(mistakes(tokens),
              (Lines{"d:1 []", "d:2 [a", "d:3 word", "d:4 = 3", "d:5 ; old style", "d:8 [a=b"}));
}

TEST(TokenizeDeck, EmptyText) {
    EXPECT_TRUE(tokenize_deck("", "d").assignments.empty());
    EXPECT_TRUE(tokenize_deck("\n#\n", "d").mistakes.empty());
}

Tokens command_line(const std::vector<std::string>& words) {
    return tokenize_command_line(words);
}

TEST(TokenizeCommandLine, BothForms) {
    const Tokens tokens = command_line({"--a.b", "1", "--c.d=2", "--e.f=x=y", "--g.h", "-1",
                                        "--i.j=--k", "--l.m", "\"q\"", "--n.o", ""});
    EXPECT_EQ(assignments(tokens),
              (Lines{"command line a.b=1", "command line c.d=2", "command line e.f=x=y",
                     "command line g.h=-1", "command line i.j=--k", "command line l.m=\"q\"",
                     "command line n.o="}));
    EXPECT_EQ(mistakes(tokens), Lines{});
}

TEST(TokenizeCommandLine, EveryMistakeIsReportedAndTheRestIsRead) {
    const Tokens tokens = command_line({"stray", "--a.b", "--c.d=1", "more", "--=2", "--e.f=", "-x",
                                        "--", "--g.h", "3", "--last.key"});
    // Behind the conventional "--" nothing is an option any more.
    EXPECT_EQ(assignments(tokens), (Lines{"command line c.d=1"}));
    EXPECT_EQ(mistakes(tokens),
              (Lines{"command line --=2", "command line --e.f=", "command line stray",
                     "command line --a.b", "command line more", "command line -x",
                     "command line --g.h", "command line 3", "command line --last.key"}));
}

}  // namespace
}  // namespace fullshard::config
