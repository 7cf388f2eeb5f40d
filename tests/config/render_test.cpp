#include "config/render.h"

#include "config/key_table.h"
#include "support.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fullshard::config {
namespace {

Deck round_trip(const Deck& deck) {
    return parse(effective_deck(deck), "effective.ini", {});
}

TEST(EffectiveDeck, DefaultsComeBack) {
    EXPECT_EQ(round_trip(Deck{}), Deck{});
}

TEST(EffectiveDeck, EveryKeyComesBack) {
    Deck deck;
    deck.run = {.dir = "runs/with space", .seed = std::numeric_limits<std::uint64_t>::max()};
    deck.model = {.family = Family::kLlama,
                  .config = "some/config.json",
                  .vocab_size = 300,
                  .pad_vocab_to = 64,
                  .d_model = 6,
                  .num_heads = 3,
                  .num_kv_heads = 1,
                  .head_size = 4,
                  .num_layers = 1,
                  .d_ff = 5,
                  .max_positions = 77,
                  .norm_eps = 1e-6,
                  .init_deviation = 1.0 / 3.0,
                  .rope_theta = 5e5,
                  .rope_scaling = RopeScaling::kYarn,
                  .rope_factor = 8.5,
                  .rope_original_positions = 9,
                  .rope_low_freq_factor = 1.5,
                  .rope_high_freq_factor = 4.5,
                  .rope_beta_fast = 33.0,
                  .rope_beta_slow = 1.25,
                  .rope_attention_factor = 1.125,
                  .dropout = 0.1 + 0.2,
                  .activation = Activation::kGelu,
                  .norm_first = true,
                  .attention = Attention::kBidirectional,
                  .positions = Positions::kLearned,
                  .tie_embeddings = true,
                  .path = {"a b.pt", "c.pt"},
                  .init_from = "weights.h5"};
    deck.data = {.source = Source::kJsonl,
                 .path = {},
                 .validation_path = "other/file",
                 .sources = {{"web-1", Source::kLlmc, "a_*.bin", "b.bin", 0.25},
                             {"wiki", Source::kMegatron, "c"}},
                 .sequence = 17,
                 .packing = Packing::kDocuments,
                 .document_mask = true,
                 .document_end = 50256,
                 .validation_fraction = 1.0 / 3.0,
                 .synthetic_sequences = 9,
                 .shuffle = false,
                 .prefetch = 0,
                 .tokenizer = "some/tokenizer"};
    deck.generate = {.prompt = "a # of\tthings\n\\ \x01",
                     .samples = 2,
                     .max_tokens = 9,
                     .temperature = 0.0,
                     .top_k = 3,
                     .top_p = 0.5,
                     .stop_token = 2,
                     .seed = 7};
    deck.train = {.steps = 12,
                  .micro_batch = 3,
                  .grad_accum_steps = 2,
                  .global_batch = 24,
                  .log_every = 4,
                  .eval_every = 6,
                  .eval_max_sequences = 8,
                  .stop_at_step = 11,
                  .on_nonfinite = OnNonfinite::kSkip,
                  .activation_checkpointing = 2};
    deck.optimizer = {.lr = 0.1f,  // a float's value has 17 digits as a double
                      .beta1 = std::nextafter(1.0, 0.0),
                      .beta2 = 0.95,
                      .eps = std::numeric_limits<double>::denorm_min(),
                      .weight_decay = std::numeric_limits<double>::max(),
                      .clip_norm = 1.0 / 3.0};
    deck.schedule = {.kind = ScheduleKind::kCosine, .warmup_steps = 2, .min_lr_ratio = 1e-17};
    deck.shard = {.strategy = Strategy::kHybridShard,
                  .group_size = 4,
                  .wrap_policy = WrapPolicy::kSize,
                  .min_num_params = 77,
                  .reshard_after_forward = {ReshardAfterForward::Kind::kGroup, 2},
                  .prefetch = Prefetch::kBackwardPost,
                  .store = Store::kSlotted,
                  .slots = 3};
    deck.reduce = {.order = ReduceOrder::kFast, .accumulation = Accumulation::kUnsharded};
    deck.precision = {.param = DType::kFloat16,
                      .reduce = DType::kBFloat16,
                      .buffer = DType::kFloat16,
                      .loss_scale = 0x1p-24,
                      .initial_scale = 0x1p32,
                      .scale_window = 5,
                      .scale_hysteresis = 3,
                      .min_scale = 0.25};
    deck.topology = {.ranks_per_node = 2};
    deck.comm = {.node_shared = false, .timeout_s = 0.5};
    deck.checkpoint = {.every = 3, .keep_last = 0, .resume = "some/run"};
    deck.kernels = {.threads = 3};
    deck.fault = {.throw_at_step = 5, .rank = 1, .delay_us = 10, .poison = true};
    EXPECT_EQ(round_trip(deck), deck) << effective_deck(deck);
}

TEST(EffectiveDeck, EveryReshardingComesBack) {
    using Kind = ReshardAfterForward::Kind;
    for (const ReshardAfterForward value :
         {ReshardAfterForward{}, ReshardAfterForward{Kind::kYes}, ReshardAfterForward{Kind::kNo},
          ReshardAfterForward{Kind::kGroup, 16}}) {
        Deck deck;
        deck.shard.reshard_after_forward = value;
        EXPECT_EQ(round_trip(deck), deck) << effective_deck(deck);
    }
}

TEST(EffectiveDeck, PathsWithSpacesAndQuotesComeBack) {
    for (const char* path : {" a", "a ", "\"a\"", "'a", "a\"", "\"", "a'b c", "=", "[a]", ""}) {
        Deck deck;
        deck.data.path = path;
        EXPECT_EQ(round_trip(deck).data.path, path) << effective_deck(deck);
    }
}

TEST(EffectiveDeck, CommentsTellOrigins) {
    const std::string text = effective_deck(parsed("[run]\nseed = 5\n", {"--train.steps", "7"}));
    EXPECT_TRUE(contains(text, "\nseed = 5                              # t.ini:2\n")) << text;
    EXPECT_TRUE(contains(text, "\nsteps = 7                             # command line\n")) << text;
    EXPECT_TRUE(contains(text, "\nmicro_batch = 0                       # default\n")) << text;
}

TEST(Documentation, HasEveryKeyWithItsFacts) {
    const std::string list = list_keys();
    const std::string markdown = keys_markdown();
    for (const Section& section : key_table()) {
        EXPECT_TRUE(contains(list, "[" + section.name + "]"));
        EXPECT_TRUE(contains(markdown, "## [" + section.name + "]"));
        for (const Key& key : section.keys) {
            EXPECT_TRUE(contains(list, "\n  " + key.name + " ")) << key.name;
            const std::string fallback = default_text(key).empty() ? "-" : default_text(key);
            const std::string row = "| `" + key.name + "` | " + key.type + " | " +
                                    (key.unit.empty() ? "-" : key.unit) + " | " + fallback + " | " +
                                    key.allowed + " | " + key.meaning + " |\n";
            EXPECT_TRUE(contains(markdown, row)) << row;
        }
    }
}

TEST(Documentation, TerminalLinesFit) {
    const std::string list = list_keys();
    std::size_t begin = 0;
    while (begin < list.size()) {
        const std::size_t end = list.find('\n', begin);
        EXPECT_LE(end - begin, 140u) << list.substr(begin, end - begin);
        begin = end + 1;
    }
}

}  // namespace
}  // namespace fullshard::config
