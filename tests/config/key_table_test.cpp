#include "config/key_table.h"

#include "support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace fullshard::config {
namespace {

template <typename Visit>
void for_each_key(Visit visit) {
    for (const Section& section : key_table()) {
        for (const Key& key : section.keys) visit(section, key);
    }
}

/// A deck in which the entry that stands for a list in the documentation exists, at defaults.
Deck with_entries() {
    Deck deck;
    deck.data.sources = {{.name = std::string(kEntryPlaceholder)}};
    deck.optimizer.groups = {{.name = std::string(kEntryPlaceholder)}};
    return deck;
}

/// Some legal value other than the default, or empty for a key that has only one.
std::string other_value(const Key& key) {
    for (const std::string candidate :
         {"7",         "0.25",          "on",      "off",      "a/b",          "text",
          "gelu",      "bidirectional", "learned", "rolled",   "cosine",       "no_shard",
          "slotted",   "torchscript",   "skip",    "size",     "backward_pre", "fast",
          "unsharded", "bf16",          "8",       "node",     "abort",        "before_data",
          "yarn",      "documents",     "llmc",    "libtorch", "nccl",         "cuda"}) {
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
        ASSERT_TRUE(find_key(key.name)) << key.name;
        EXPECT_EQ(find_key(key.name)->meaning, key.meaning);
        EXPECT_FALSE(key.type.empty()) << key.name;
        EXPECT_FALSE(key.allowed.empty()) << key.name;
        EXPECT_TRUE(key.meaning.ends_with(".")) << key.name;
        EXPECT_EQ(key.meaning.find('|'), std::string::npos) << key.name;
    });
    EXPECT_FALSE(find_key("model"));
}

TEST(KeyTable, NamesThatScriptsRelyOn) {
    for (const char* name : {"run.dir",
                             "run.seed",
                             "train.steps",
                             "train.micro_batch",
                             "train.grad_accum_steps",
                             "train.global_batch",
                             "shard.strategy",
                             "reduce.order",
                             "topology.ranks_per_node",
                             "comm.node_shared",
                             "comm.backend",
                             "comm.progress_thread",
                             "kernels.gemm",
                             "fault.throw_at_step",
                             "fault.rank",
                             "shard.group_size",
                             "shard.wrap_policy",
                             "shard.reshard_after_forward",
                             "shard.prefetch",
                             "precision.param",
                             "precision.reduce",
                             "precision.buffer",
                             "optimizer.group.a.lr"}) {
        EXPECT_TRUE(find_key(name)) << name;
    }
}

TEST(KeyTable, DefaultsAreLegal) {
    for_each_key([](const Section&, const Key& key) {
        Deck deck = with_entries();
        EXPECT_FALSE(key.assign(deck, default_text(key))) << key.name;
        EXPECT_EQ(deck, with_entries()) << key.name;
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
        Deck deck = with_entries();
        ASSERT_FALSE(key.assign(deck, other));
        EXPECT_NE(deck, with_entries()) << key.name;
        for_each_key([&](const Section&, const Key& neighbour) {
            if (&neighbour == &key) return;
            EXPECT_EQ(neighbour.text(deck), default_text(neighbour)) << key.name << neighbour.name;
        });
    });
    EXPECT_EQ(single_valued, std::vector<std::string>{"optimizer.name"});
}

TEST(KeyTable, BoundsAreInclusiveUnlessOpen) {
    Deck deck;
    const auto accepts = [&](const char* name, const char* value) {
        return !find_key(name)->assign(deck, value);
    };
    EXPECT_TRUE(accepts("shard.slots", "1"));
    EXPECT_FALSE(accepts("shard.slots", "0"));
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

TEST(Lists, AKeyOfAnyEntryCanBeFound) {
    const auto key = find_key("optimizer.group.any-Name_0.weight_decay");
    ASSERT_TRUE(key);
    EXPECT_EQ(key->name, "optimizer.group.any-Name_0.weight_decay");
    EXPECT_EQ(key->text(Deck{}), "auto");
    for (const char* name :
         {"optimizer.group.lr", "optimizer.group..lr", "optimizer.group.a.b.lr",
          "optimizer.group.a b.lr", "optimizer.group.a.beta1", "optimizer.groups.a.lr"}) {
        EXPECT_FALSE(find_key(name)) << name;
    }
}

TEST(Lists, AValueThatIsAcceptedAddsTheEntryAndARefusedOneDoesNot) {
    Deck deck;
    EXPECT_TRUE(find_key("optimizer.group.a.lr")->assign(deck, "fast"));
    EXPECT_EQ(deck, Deck{});
    EXPECT_FALSE(find_key("optimizer.group.a.lr")->assign(deck, "0.5"));
    EXPECT_FALSE(find_key("optimizer.group.b.frozen")->assign(deck, "on"));
    EXPECT_FALSE(find_key("optimizer.group.a.parameters")->assign(deck, "x"));
    EXPECT_EQ(deck.optimizer.groups,
              (std::vector<ParameterGroup>{{.name = "a", .patterns = {"x"}, .lr = 0.5},
                                           {.name = "b", .frozen = true}}));
}

TEST(Lists, ADecksSectionsHaveOneForEachEntry) {
    Deck deck;
    const std::size_t without = sections_of(deck).size();
    EXPECT_EQ(without, key_table().size() - 2);
    deck.optimizer.groups = {{.name = "b"}, {.name = "a"}};
    const auto sections = sections_of(deck);
    ASSERT_EQ(sections.size(), without + 2);
    const auto b = std::ranges::find(sections, "optimizer.group.b", &Section::name);
    ASSERT_LT(b - sections.begin() + 1, std::ssize(sections));
    EXPECT_EQ((b - 1)->name, "optimizer");
    EXPECT_EQ((b + 1)->name, "optimizer.group.a");
    EXPECT_EQ(b->keys.front().name, "optimizer.group.b.parameters");
}

}  // namespace
}  // namespace fullshard::config
