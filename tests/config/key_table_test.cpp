#include "config/key_table.h"

#include "support.h"

#include <gtest/gtest.h>

#include <set>

namespace fullshard::config {
namespace {

template <typename Visit>
void for_each_key(Visit visit) {
    for (const Section& section : key_table()) {
        for (const Key& key : section.keys) visit(section, key);
    }
}

/// Some legal value other than the default, or empty for a key that has only one.
std::string other_value(const Key& key) {
    for (const std::string candidate :
         {"7", "0.25", "on", "off", "a/b", "text", "gelu", "bidirectional", "learned", "rolled",
          "cosine", "no_shard", "slotted"}) {
        Deck deck;
        if (!key.assign(deck, candidate) && key.text(deck) != default_text(key)) return candidate;
    }
    return {};
}

TEST(KeyTable, EveryKeyIsDocumentedOnceInItsSection) {
    std::set<std::string> names;
    for_each_key([&](const Section& section, const Key& key) {
        EXPECT_TRUE(key.name.starts_with(section.name + ".")) << key.name;
        EXPECT_TRUE(names.insert(key.name).second) << key.name;
        EXPECT_EQ(find_key(key.name), &key);
        EXPECT_FALSE(key.type.empty()) << key.name;
        EXPECT_FALSE(key.allowed.empty()) << key.name;
        EXPECT_TRUE(key.meaning.ends_with(".")) << key.name;
        EXPECT_EQ(key.meaning.find('|'), std::string::npos) << key.name;
    });
    EXPECT_EQ(find_key("model"), nullptr);
}

TEST(KeyTable, NamesThatScriptsRelyOn) {
    for (const char* name :
         {"run.dir", "run.seed", "train.steps", "train.micro_batch", "train.grad_accum_steps",
          "train.global_batch", "shard.strategy", "reduce.order", "topology.ranks_per_node",
          "comm.node_shared", "comm.backend", "fault.throw_at_step", "fault.rank"}) {
        EXPECT_NE(find_key(name), nullptr) << name;
    }
}

TEST(KeyTable, DefaultsAreLegal) {
    for_each_key([](const Section&, const Key& key) {
        Deck deck;
        EXPECT_FALSE(key.assign(deck, default_text(key))) << key.name;
        EXPECT_EQ(deck, Deck{}) << key.name;
    });
}

// Catches a key bound to another key's member, and a section that equality forgets.
TEST(KeyTable, EveryKeyHasAMemberOfItsOwnThatEqualitySees) {
    std::vector<std::string> single_valued;
    for_each_key([&](const Section&, const Key& key) {
        const std::string other = other_value(key);
        if (other.empty()) {
            single_valued.push_back(key.name);
            return;
        }
        Deck deck;
        ASSERT_FALSE(key.assign(deck, other));
        EXPECT_NE(deck, Deck{}) << key.name;
        for_each_key([&](const Section&, const Key& neighbour) {
            if (&neighbour == &key) return;
            EXPECT_EQ(neighbour.text(deck), default_text(neighbour)) << key.name << neighbour.name;
        });
    });
    EXPECT_EQ(single_valued, (std::vector<std::string>{"model.family", "optimizer.name",
                                                       "reduce.order", "comm.backend"}));
}

TEST(KeyTable, BoundsAreInclusiveUnlessOpen) {
    Deck deck;
    const auto accepts = [&](const char* name, const char* value) {
        return !find_key(name)->assign(deck, value);
    };
    EXPECT_TRUE(accepts("shard.slots", "2"));
    EXPECT_FALSE(accepts("shard.slots", "1"));
    EXPECT_TRUE(accepts("train.micro_batch", "1000000"));
    EXPECT_FALSE(accepts("train.micro_batch", "1000001"));
    EXPECT_TRUE(accepts("model.dropout", "0"));
    EXPECT_FALSE(accepts("model.dropout", "1"));
    EXPECT_FALSE(accepts("model.dropout", "-0.1"));
    EXPECT_TRUE(accepts("schedule.min_lr_ratio", "1"));
    EXPECT_FALSE(accepts("schedule.min_lr_ratio", "1.0000001"));
    EXPECT_FALSE(accepts("optimizer.eps", "0"));
    EXPECT_TRUE(accepts("run.seed", "18446744073709551615"));
    EXPECT_FALSE(accepts("run.seed", "18446744073709551616"));
    EXPECT_FALSE(accepts("run.seed", "-1"));
}

}  // namespace
}  // namespace fullshard::config
