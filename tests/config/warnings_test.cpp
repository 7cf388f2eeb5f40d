#include "config/checks.h"
#include "config/render.h"
#include "support.h"

#include <gtest/gtest.h>

#include <utility>

namespace fullshard::config {
namespace {

TEST(Warnings, DefaultsHaveNone) {
    EXPECT_TRUE(warnings(Deck{}).empty());
}

TEST(Warnings, BidirectionalAttentionReadsTheAnswer) {
    for (const Targets targets : {Targets::kNext, Targets::kRolled}) {
        Deck deck;
        deck.model.attention = Attention::kBidirectional;
        deck.data.targets = targets;
        ASSERT_EQ(warnings(deck).size(), 1u);
        EXPECT_TRUE(contains(warnings(deck).front(), "model.attention = bidirectional"));
    }
}

TEST(Warnings, KeysOfCpusOnGpus) {
    Deck deck;
    deck.kernels.gemm = Gemm::kOneDnn;
    deck.comm.progress_thread = ProgressThread::kOn;
    EXPECT_TRUE(warnings(deck).empty());
    deck.device.kind = Processor::kCuda;
    ASSERT_EQ(warnings(deck).size(), 2u);
    EXPECT_TRUE(contains(warnings(deck)[0], "comm.progress_thread"));
    EXPECT_TRUE(contains(warnings(deck)[1], "kernels.gemm"));
}

TEST(Warnings, RolledTargetsOnText) {
    Deck deck;
    deck.data.targets = Targets::kRolled;
    EXPECT_TRUE(warnings(deck).empty());
    deck.data.source = Source::kText;
    EXPECT_EQ(warnings(deck).size(), 1u);
}

TEST(Warnings, FaultsAreAnnounced) {
    const Deck deck = parsed("[fault]\nthrow_at_step = 3\nrank = 1\ndelay_us = 50\npoison = on\n");
    const auto lines = warnings(deck);
    ASSERT_EQ(lines.size(), 3u);
    for (const std::string& line : lines) EXPECT_TRUE(line.starts_with("FAULT INJECTION")) << line;
    EXPECT_TRUE(contains(lines[0], "rank 1 will throw in step 3"));
}

TEST(Warnings, Fp16SumsWithoutLossScale) {
    EXPECT_EQ(warnings(parsed("", {"--precision.reduce", "bf16"})).size(), 0u);
    EXPECT_EQ(warnings(parsed("[precision]\nreduce = fp16\nparam = fp16\n")).size(), 0u);
    const auto lines = warnings(parsed("[precision]\nreduce = fp16\nparam = bf16\n"));
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_TRUE(contains(lines[0], "precision.param = bf16: gradients are summed in fp16"));
}

/// The keys that warnings call idle, in their order.
std::vector<std::string> idle_keys(std::string_view deck) {
    std::vector<std::string> keys;
    for (const std::string& line : warnings(parsed(deck))) {
        if (contains(line, " has no effect: ")) keys.push_back(line.substr(0, line.find(' ')));
    }
    return keys;
}

TEST(Warnings, KeysThatNothingReads) {
    using Keys = std::vector<std::string>;
    const std::vector<std::pair<std::string, Keys>> cases{
        {"[model]\npath = a.pt\n", {"model.path"}},
        {"[precision]\nbuffer = bf16\n", {"precision.buffer"}},
        {"[model]\nfamily = torchscript\npath = a.pt\nd_model = 8\nnum_heads = 2\n"
         "num_layers = 1\nd_ff = 9\ndropout = 0\nactivation = gelu\nnorm_first = on\n"
         "attention = bidirectional\npositions = learned\ntie_embeddings = on\n"
         "[precision]\nbuffer = bf16\n",
         {"model.d_model", "model.num_heads", "model.num_layers", "model.d_ff",
          "model.tie_embeddings", "model.activation", "model.norm_first", "model.attention",
          "model.positions", "model.dropout"}},
        {"[model]\nconfig = a\npad_vocab_to = 8\nnorm_eps = 1\ninit_deviation = 1\n"
         "num_kv_heads = 1\nhead_size = 8\nrope_theta = 1\nrope_scaling = yarn\n"
         "rope_factor = 2\nrope_original_positions = 1\nrope_beta_fast = 2\n",
         {"model.config", "model.pad_vocab_to", "model.norm_eps", "model.init_deviation",
          "model.num_kv_heads", "model.head_size", "model.rope_theta", "model.rope_scaling",
          "model.rope_factor", "model.rope_original_positions", "model.rope_beta_fast"}},
        {"[model]\nfamily = gpt2\nconfig = a\npad_vocab_to = 8\nactivation = gelu\n"
         "dropout = 0\nrope_theta = 1\nmax_positions = 128\n",
         {"model.activation", "model.rope_theta"}},
        {"[model]\nfamily = llama\ndropout = 0\nrope_theta = 1\nrope_factor = 2\n",
         {"model.dropout", "model.rope_factor"}},
        {"[model]\nfamily = llama\nrope_scaling = linear\nrope_factor = 2\n"
         "rope_original_positions = 5\nrope_beta_slow = 2\nrope_low_freq_factor = 2\n",
         {"model.rope_original_positions", "model.rope_low_freq_factor", "model.rope_beta_slow"}},
        {"[model]\nfamily = llama\nrope_scaling = llama3\nrope_factor = 2\n"
         "rope_original_positions = 5\nrope_low_freq_factor = 2\n",
         {}},
        {"[data]\npath = a\npacking = none\ndocument_end = 0\n",
         {"data.path", "data.packing", "data.document_end"}},
        {"[data]\nsource = text\npath = a\nvalidation_path = b\nvalidation_fraction = 0.5\n",
         {"data.validation_fraction"}},
        {"[data]\nsource = text\nvalidation_path = b\n[data.source.a]\npath = a\n",
         {"data.source", "data.validation_path"}},
        {"[model]\nfamily = custom\npath = a.pt\nd_model = 8\n[precision]\nbuffer = bf16\n", {}},
        {"[data]\npath = a\n", {"data.path"}},
        {"[data]\nsource = text\npath = a\nsynthetic_sequences = 5\n",
         {"data.synthetic_sequences"}},
        {"[data]\nvalidation_fraction = 0\n[train]\neval_max_sequences = 3\n",
         {"train.eval_max_sequences"}},
        {"[schedule]\nmin_lr_ratio = 0.5\n", {"schedule.min_lr_ratio"}},
        {"[schedule]\nkind = linear\nmin_lr_ratio = 0.5\n", {}},
        {"[optimizer.group.a]\nparameters = *\nlr = 1\nweight_decay = 0\nfrozen = on\n",
         {"optimizer.group.a.lr", "optimizer.group.a.weight_decay"}},
        {"[optimizer.group.a]\nparameters = *\nlr = 1\nweight_decay = 0\n", {}},
        {"[precision]\nloss_scale = 8\ninitial_scale = 8\nscale_window = 8\n"
         "scale_hysteresis = 8\nmin_scale = 8\nparam = bf16\n",
         {"precision.loss_scale", "precision.initial_scale", "precision.scale_window",
          "precision.scale_hysteresis", "precision.min_scale"}},
        {"[precision]\nparam = fp16\nloss_scale = 8\ninitial_scale = 8\nscale_window = 8\n"
         "scale_hysteresis = 8\nmin_scale = 8\n[train]\non_nonfinite = skip\n",
         {"precision.initial_scale", "precision.scale_window", "precision.scale_hysteresis",
          "precision.min_scale"}},
        {"[precision]\nparam = fp16\ninitial_scale = 8\nscale_window = 8\n"
         "scale_hysteresis = 8\nmin_scale = 8\n[train]\non_nonfinite = skip\n",
         {"train.on_nonfinite"}},
        {"[train]\non_nonfinite = skip\n", {}},
        {"[shard]\nmin_num_params = 5\n", {"shard.min_num_params"}},
        {"[shard]\nmin_num_params = 5\nwrap_policy = size\n", {}},
        {"[shard]\nstrategy = no_shard\nstore = slotted\nslots = 3\nprefetch = off\n"
         "reshard_after_forward = off\n",
         {"shard.store", "shard.slots", "shard.prefetch", "shard.reshard_after_forward"}},
        {"[shard]\nstore = resident\nslots = 3\nprefetch = off\nreshard_after_forward = off\n",
         {"shard.prefetch", "shard.reshard_after_forward"}},
        {"[shard]\nstore = slotted\nslots = 3\nprefetch = off\nreshard_after_forward = off\n", {}},
        {"[fault]\nrank = 1\n", {"fault.rank"}},
        {"[fault]\nrank = 1\nkill_in_save = during_data\n", {}},
        {"[fault]\nrank = 1\nslow_step_s = 0.5\n", {}},
    };
    for (const auto& [deck, keys] : cases) EXPECT_EQ(idle_keys(deck), keys) << deck;
}

TEST(Warnings, IdleKeysComeWithValueOriginAndReason) {
    EXPECT_EQ(warnings(parsed("[shard]\nmin_num_params = 5\n")),
              std::vector<std::string>{"shard.min_num_params = 5 (t.ini:2) has no effect: it is "
                                       "read for shard.wrap_policy = size"});
}

// An effective deck sets every key; running it must not warn of all those at their defaults.
TEST(Warnings, AnEffectiveDeckWarnsNoMoreThanItsOrigin) {
    const Deck deck = parsed("[shard]\nstrategy = no_shard\nprefetch = off\n");
    const Deck again = parse(effective_deck(deck), "effective.ini", {});
    EXPECT_EQ(warnings(again).size(), warnings(deck).size());
    EXPECT_TRUE(warnings(parse(effective_deck(Deck{}), "effective.ini", {})).empty());
}

}  // namespace
}  // namespace fullshard::config
