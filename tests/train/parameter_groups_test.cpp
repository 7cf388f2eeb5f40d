#include "train/parameter_groups.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace fullshard::train {
namespace {

using Groups = std::vector<config::ParameterGroup>;

config::Optimizer with(const Groups& groups) {
    config::Optimizer optimizer;
    optimizer.groups = groups;
    return optimizer;
}

config::ParameterGroup group(std::string name, std::vector<std::string> patterns,
                             bool frozen = false) {
    config::ParameterGroup result;
    result.name = std::move(name);
    result.patterns = std::move(patterns);
    result.frozen = frozen;
    return result;
}

/// Embedding, two layers, and a head whose weight is the embedding's.
spec::ModelSpec model() {
    const auto parameter = [](std::string name, std::string tied_to = "") {
        spec::ParameterSpec spec;
        spec.name = std::move(name);
        spec.shape = {2};
        spec.tied_to = std::move(tied_to);
        return spec;
    };
    return {"toy",
            {{"embedding", {parameter("embedding.weight")}},
             {"layers.0", {parameter("layers.0.norm.weight"), parameter("layers.0.norm.bias")}},
             {"layers.1", {parameter("layers.1.norm.weight"), parameter("layers.1.norm.bias")}},
             {"head", {parameter("head.weight", "embedding.weight"), parameter("head.bias")}}}};
}

std::set<std::string> frozen(const Groups& groups) {
    std::set<std::string> names;
    for (const auto& stage : with_groups(model(), with(groups)).stages) {
        for (const auto& parameter : stage.parameters) {
            if (!parameter.trainable) names.insert(parameter.name);
        }
    }
    return names;
}

std::string error(const Groups& groups) {
    try {
        with_groups(model(), with(groups));
    } catch (const UsageError& mistake) {
        return mistake.what();
    }
    return "no error";
}

TEST(PatternDistance, IsZeroExactlyForMatches) {
    for (const char* pattern : {"layers.0.norm.bias", "layers.*", "*", "*.bias", "layers.?.norm.*",
                                "l*0*b*s", "layers.0.norm.bias*", "**"}) {
        EXPECT_EQ(pattern_distance(pattern, "layers.0.norm.bias"), 0u) << pattern;
    }
    for (const char* pattern : {"layers.0.norm.bia", "layers.0.norm.bias?", "layers", "*.weight",
                                "", "norm", "?", "Layers.*"}) {
        EXPECT_GT(pattern_distance(pattern, "layers.0.norm.bias"), 0u) << pattern;
    }
    EXPECT_EQ(pattern_distance("", ""), 0u);
    EXPECT_EQ(pattern_distance("*", ""), 0u);
}

TEST(PatternDistance, CountsEditsOutsideOfWildcards) {
    EXPECT_EQ(pattern_distance("layrs.*.bias", "layers.0.norm.bias"), 1u);
    EXPECT_EQ(pattern_distance("*.biases", "head.bias"), 2u);
    EXPECT_EQ(pattern_distance("abc", ""), 3u);
    EXPECT_EQ(pattern_distance("", "abc"), 3u);
}

TEST(ParameterGroups, FirstMatchWins) {
    const Groups groups = {group("norms", {"*.norm.*"}), group("rest", {"head.*", "*"})};
    EXPECT_EQ(group_of("layers.1.norm.bias", groups), &groups[0]);
    EXPECT_EQ(group_of("head.bias", groups), &groups[1]);
    EXPECT_EQ(group_of("head.bias", Groups{groups[0]}), nullptr);
}

TEST(ParameterGroups, FreezeWhatTheyMatch) {
    EXPECT_EQ(frozen({}), std::set<std::string>{});
    EXPECT_EQ(frozen({group("lower", {"layers.0.*"}, true)}),
              (std::set<std::string>{"layers.0.norm.bias", "layers.0.norm.weight"}));
    // An earlier group keeps what a later one would freeze.
    EXPECT_EQ(frozen({group("biases", {"*.bias"}), group("layers", {"layers.*"}, true)}),
              (std::set<std::string>{"layers.0.norm.weight", "layers.1.norm.weight"}));
}

TEST(ParameterGroups, TiedParameterGoesWithTheOneItIs) {
    EXPECT_EQ(frozen({group("tables", {"embedding.*"}, true)}),
              (std::set<std::string>{"embedding.weight", "head.weight"}));
    EXPECT_EQ(frozen({group("head", {"head.*"}, true)}), std::set<std::string>{"head.bias"});
    EXPECT_EQ(error({group("head", {"head.weight"}, true)}),
              "optimizer.group.head.parameters: no parameter is called head.weight; head.weight is "
              "tied to embedding.weight: name that one");
}

TEST(ParameterGroups, UnmatchedPatternsAreListedWithTheNearestNames) {
    EXPECT_EQ(error({group("a", {"head.bias", "layrs.1.*"}), group("b", {"*.biass"})}),
              "optimizer.group.a.parameters: no parameter is called layrs.1.*; the nearest names "
              "are layers.1.norm.weight, layers.1.norm.bias, layers.0.norm.weight\n"
              "optimizer.group.b.parameters: no parameter is called *.biass; the nearest names are "
              "layers.0.norm.bias, layers.1.norm.bias, head.bias");
}

TEST(ParameterGroups, RatesAreMultiplesOfTheDecks) {
    config::Optimizer optimizer = with({group("fast", {"head.*"})});
    optimizer.groups[0].lr = 0.5;
    optimizer.lr = 0.0;
    EXPECT_THROW(with_groups(model(), optimizer), UsageError);
    optimizer.lr = 0.1;
    EXPECT_NO_THROW(with_groups(model(), optimizer));
}

TEST(ParameterGroups, SomethingIsLeftToTrain) {
    EXPECT_NE(error({group("all", {"*"}, true)}).find("leaves nothing to train"),
              std::string::npos);
}

}  // namespace
}  // namespace fullshard::train
