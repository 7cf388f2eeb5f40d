#include "config/checks.h"

#include "config/elasticity.h"
#include "config/world_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace fullshard::config {
namespace {

std::int64_t nearest_divisor(std::int64_t number, std::int64_t wanted) {
    for (std::int64_t distance = 0;; ++distance) {
        const std::int64_t below = wanted - distance;
        if (below >= 1 && number % below == 0) return below;
        if (number % (wanted + distance) == 0) return wanted + distance;
    }
}

void check_run(const Deck& deck, std::vector<Contradiction>& found) {
    if (deck.run.measure_peak && deck.run.peak_gflops > 0.0) {
        found.push_back({{"run.measure_peak", "run.peak_gflops"},
                         "the MFU refers to one peak, measured or given",
                         "set run.peak_gflops = 0, or run.measure_peak = off"});
    }
}

bool is_decoder(Family family) {
    return family == Family::kGpt2 || family == Family::kLlama;
}

/// What sizes have to do with each other; those of model.config are not known here and checked with
/// the model.
void check_heads(const Model& model, std::vector<Contradiction>& found) {
    const bool built_in = model.family == Family::kSimpleTransformer || is_decoder(model.family);
    if (!built_in || !model.config.empty()) return;
    const bool own_head_size = model.family == Family::kLlama && model.head_size > 0;
    if (!own_head_size && model.d_model % model.num_heads != 0) {
        found.push_back({{"model.d_model", "model.num_heads"},
                         "the heads cannot share d_model equally",
                         fmt::format("set model.num_heads = {} or model.d_model = {}",
                                     nearest_divisor(model.d_model, model.num_heads),
                                     (model.d_model / model.num_heads + 1) * model.num_heads)});
    }
    if (model.family != Family::kLlama) return;
    if (model.num_kv_heads > 0 && model.num_heads % model.num_kv_heads != 0) {
        found.push_back({{"model.num_heads", "model.num_kv_heads"},
                         "heads of keys and values cannot be shared by equally many heads",
                         fmt::format("set model.num_kv_heads = {}",
                                     nearest_divisor(model.num_heads, model.num_kv_heads))});
    }
    const std::int64_t head_size =
        own_head_size ? model.head_size : model.d_model / model.num_heads;
    if (head_size % 2 != 0) {
        found.push_back({{"model.d_model", "model.num_heads", "model.head_size"},
                         "rotary positions turn pairs of a head's elements",
                         fmt::format("set model.head_size = {}", head_size + 1)});
    }
}

void check_rope(const Model& model, std::vector<Contradiction>& found) {
    if (model.family != Family::kLlama) return;
    if (model.rope_scaling == RopeScaling::kLlama3 &&
        model.rope_low_freq_factor >= model.rope_high_freq_factor) {
        found.push_back({{"model.rope_low_freq_factor", "model.rope_high_freq_factor"},
                         "no wavelengths lie between those that are stretched and those kept",
                         "set model.rope_low_freq_factor = 1 and rope_high_freq_factor = 4"});
    }
    if (model.rope_scaling == RopeScaling::kYarn && model.rope_beta_slow >= model.rope_beta_fast) {
        found.push_back({{"model.rope_beta_slow", "model.rope_beta_fast"},
                         "no frequencies lie between those that are stretched and those kept",
                         "set model.rope_beta_slow = 1 and rope_beta_fast = 32"});
    }
}

void check_model(const Deck& deck, std::vector<Contradiction>& found) {
    const Model& model = deck.model;
    if (model.family == Family::kTorchScript && model.path.empty()) {
        found.push_back({{"model.family", "model.path"},
                         "a TorchScript model is read from files",
                         "set model.path, or model.family = simple_transformer"});
    }
    check_heads(model, found);
    check_rope(model, found);
    const bool table =
        model.family == Family::kGpt2 ||
        (model.family == Family::kSimpleTransformer && model.positions == Positions::kLearned);
    if (table && model.max_positions > 0 && model.max_positions < deck.data.sequence) {
        found.push_back({{"model.max_positions", "data.sequence"},
                         "a sequence would be longer than the table of learned positions",
                         fmt::format("set data.sequence = {} or less", model.max_positions)});
    }
}

void check_sources(const Data& data, std::vector<Contradiction>& found) {
    if (data.sources.empty() && data.source != Source::kSynthetic && data.path.empty()) {
        found.push_back({{"data.source", "data.path"},
                         "tokens of this kind are read from files",
                         "set data.path, or data.source = synthetic"});
    }
    if (!data.sources.empty() && !data.path.empty()) {
        found.push_back({{"data.path"},
                         "sections [data.source.NAME] take the place of data.path",
                         "drop data.path, or write it as a section of its own"});
    }
    for (const DataSource& source : data.sources) {
        if (!source.path.empty()) continue;
        found.push_back({{fmt::format("data.source.{}.path", source.name)},
                         "a source is read from files",
                         "name a file or folder, or drop the section"});
    }
}

void check_data(const Deck& deck, std::vector<Contradiction>& found) {
    const Data& data = deck.data;
    check_sources(data, found);
    const bool rolled = data.targets == Targets::kRolled;
    if (rolled && data.sequence < 2) {
        found.push_back({{"data.targets", "data.sequence"},
                         "a sequence of one token rolled by one is itself",
                         "set data.sequence = 2 or more, or data.targets = next"});
    }
    const bool documents = data.packing != Packing::kStream || data.document_mask;
    if (rolled && documents) {
        found.push_back({{"data.targets", "data.packing", "data.document_mask"},
                         "a rolled sequence predicts its first token across documents",
                         "set data.targets = next"});
    }
    const Family family = deck.model.family;
    if (data.document_mask && (family == Family::kTorchScript || family == Family::kCustom)) {
        found.push_back({{"data.document_mask", "model.family"},
                         "a model of one's own is given tokens only, no borders of documents",
                         "set data.document_mask = off, and data.packing = none to keep documents "
                         "apart"});
    }
}

void check_generate(const Generate& generate, std::vector<Contradiction>& found) {
    if (generate.prompt.empty() || generate.prompt_tokens.empty()) return;
    found.push_back({{"generate.prompt", "generate.prompt_tokens"},
                     "a sample continues one prompt",
                     "set one of the two"});
}

bool holds_out(const Data& data) {
    return data.validation_fraction > 0.0 || !data.validation_path.empty() ||
           std::ranges::any_of(data.sources, [](const DataSource& source) {
               return !source.validation_path.empty();
           });
}

void check_train(const Deck& deck, std::vector<Contradiction>& found) {
    const Train& train = deck.train;
    if (train.eval_every > 0 && !holds_out(deck.data)) {
        found.push_back({{"train.eval_every", "data.validation_fraction"},
                         "there is nothing to evaluate on",
                         "set train.eval_every = 0, or data.validation_fraction above 0"});
    }
    // A zero stands for "derive"; as a factor of 1 it leaves what must divide global_batch at any
    // number of ranks.
    const std::int64_t factor = std::max<std::int64_t>(train.micro_batch, 1) *
                                std::max<std::int64_t>(train.grad_accum_steps, 1);
    if (train.global_batch % factor != 0) {
        found.push_back(
            {{"train.global_batch", "train.micro_batch", "train.grad_accum_steps"},
             "global_batch is no multiple of micro_batch * grad_accum_steps, so no number "
             "of ranks fits",
             "set one of the three to 0 to have it derived"});
    }
    if (train.stop_at_step > train.steps) {
        found.push_back({{"train.stop_at_step", "train.steps"},
                         "the run ends before it could stop",
                         fmt::format("set train.stop_at_step = {} or less", train.steps)});
    }
    if (deck.schedule.warmup_steps > train.steps) {
        found.push_back({{"schedule.warmup_steps", "train.steps"},
                         "the warm-up would outlast the training",
                         fmt::format("set schedule.warmup_steps = {} or less", train.steps)});
    }
}

void check_batches_are_free(const Train& train, std::vector<Contradiction>& found) {
    std::vector<std::string> keys{"elasticity.enabled"};
    if (train.micro_batch > 0) keys.emplace_back("train.micro_batch");
    if (train.grad_accum_steps > 0) keys.emplace_back("train.grad_accum_steps");
    if (train.global_batch > 0) keys.emplace_back("train.global_batch");
    if (keys.size() == 1) return;
    found.push_back({std::move(keys), "[elasticity] derives the batch sizes",
                     "drop the train keys or set them to 0, or set elasticity.enabled = off"});
}

void check_elastic_sizes(const Elasticity& elasticity, std::vector<Contradiction>& found) {
    const std::vector<std::int64_t>& micro_batches = elasticity.micro_batch_sizes;
    if (elasticity.max_train_batch_size == 0) {
        found.push_back({{"elasticity.enabled", "elasticity.max_train_batch_size"},
                         "a largest global batch is needed",
                         "set elasticity.max_train_batch_size"});
    }
    if (micro_batches.empty()) {
        found.push_back({{"elasticity.enabled", "elasticity.micro_batch_sizes"},
                         "a choice of micro-batches is needed",
                         "set elasticity.micro_batch_sizes to sizes such as 2, 4, 6"});
    }
    if (elasticity.min_ranks > elasticity.max_ranks) {
        found.push_back(
            {{"elasticity.min_ranks", "elasticity.max_ranks"},
             "no number of ranks lies between",
             fmt::format("set elasticity.max_ranks = {} or more", elasticity.min_ranks)});
    }
    if (elasticity.max_train_batch_size == 0 || micro_batches.empty()) return;
    const std::int64_t most = elasticity.max_train_batch_size / elasticity.ranks_per_node;
    const std::int64_t largest = std::ranges::max(micro_batches);
    if (largest > most) {
        found.push_back({{"elasticity.micro_batch_sizes", "elasticity.max_train_batch_size",
                          "elasticity.ranks_per_node"},
                         "a micro-batch on each rank of one node exceeds the largest global batch",
                         fmt::format("drop sizes above {}, or set "
                                     "elasticity.max_train_batch_size = {} or more",
                                     most, largest * elasticity.ranks_per_node)});
    }
}

void check_elasticity(const Deck& deck, std::vector<Contradiction>& found) {
    const Elasticity& elasticity = deck.elasticity;
    if (!elasticity.enabled) return;
    check_batches_are_free(deck.train, found);
    const std::size_t before = found.size();
    check_elastic_sizes(elasticity, found);
    if (found.size() > before || !elastic_batch(elasticity).world_sizes.empty()) return;
    Elasticity unlimited = elasticity;
    unlimited.min_ranks = 1;
    unlimited.max_ranks = elasticity.max_train_batch_size;
    const std::vector<std::int64_t> sizes = elastic_batch(unlimited).world_sizes;
    found.push_back({{"elasticity.min_ranks", "elasticity.max_ranks", "elasticity.ranks_per_node",
                      "elasticity.max_train_batch_size", "elasticity.micro_batch_sizes"},
                     "no number of ranks within the limits can share a global batch",
                     fmt::format("widen min_ranks and max_ranks to include some of {}",
                                 world_sizes_text(sizes, elasticity.min_ranks))});
}

void check_optimizer(const Deck& deck, std::vector<Contradiction>& found) {
    const Optimizer& optimizer = deck.optimizer;
    if (optimizer.clip_norm > 0.0 && optimizer.clip_value > 0.0) {
        found.push_back({{"optimizer.clip_norm", "optimizer.clip_value"},
                         "gradients are limited by their norm or by their elements, not both",
                         "set one of the two to 0"});
    }
    for (const ParameterGroup& group : optimizer.groups) {
        const std::string section = "optimizer.group." + group.name;
        if (group.patterns.empty()) {
            found.push_back({{section + ".parameters"},
                             "the group has no parameters",
                             fmt::format("set {}.parameters to names such as *.bias, or drop "
                                         "the group",
                                         section)});
        }
        // The schedule is one curve with the peak optimizer.lr; a group follows it by a factor.
        if (!group.frozen && group.lr.value_or(0.0) > 0.0 && optimizer.lr == 0.0) {
            found.push_back({{section + ".lr", "optimizer.lr"},
                             "a group's learning rate follows optimizer.lr by a factor, and no "
                             "factor of 0 gives it",
                             "set optimizer.lr above 0, and the lr of groups that are to stand "
                             "still to 0"});
        }
    }
}

/// Whether whole parameters are given up between forward and backward unless a key says otherwise.
bool gives_up_parameters(Strategy strategy) {
    return strategy == Strategy::kFullShard || strategy == Strategy::kHybridShard;
}

void check_resharding(const Shard& shard, std::vector<Contradiction>& found) {
    using Kind = ReshardAfterForward::Kind;
    const ReshardAfterForward& reshard = shard.reshard_after_forward;
    const bool gives_up = reshard.kind == Kind::kYes || reshard.kind == Kind::kGroup;
    if (gives_up && !gives_up_parameters(shard.strategy)) {
        found.push_back(
            {{"shard.reshard_after_forward", "shard.strategy"},
             "this strategy keeps parameters whole from forward to backward",
             fmt::format(
                 "set shard.strategy = {}, or shard.reshard_after_forward = auto",
                 shard.strategy == Strategy::kHybridShardZero2 ? "hybrid_shard" : "full_shard")});
    }
    if (reshard.kind == Kind::kGroup && shard.group_size > 0 &&
        shard.group_size % reshard.group != 0) {
        found.push_back({{"shard.reshard_after_forward", "shard.group_size"},
                         "the shard group cannot be cut into groups of so many ranks",
                         fmt::format("set shard.reshard_after_forward to on or a divisor of {}",
                                     shard.group_size)});
    }
}

void check_sharding(const Deck& deck, std::vector<Contradiction>& found) {
    const Shard& shard = deck.shard;
    if (shard.store == Store::kResident && !deck.comm.node_shared) {
        found.push_back({{"shard.store", "comm.node_shared"},
                         "a resident store is made of shared memory",
                         "set comm.node_shared = on, or shard.store = slotted"});
    }
    if (shard.strategy == Strategy::kNoShard && shard.group_size > 1) {
        found.push_back({{"shard.strategy", "shard.group_size"},
                         "no_shard splits nothing, so each rank is a group of its own",
                         "set shard.group_size = 0, or shard.strategy = full_shard"});
    }
    // Neither store gathers into slots, so there is no early gathering to make room for.
    const bool gathers = shard.strategy != Strategy::kNoShard && shard.store != Store::kResident;
    if (gathers && shard.slots == 1 && shard.prefetch != Prefetch::kOff) {
        found.push_back({{"shard.slots", "shard.prefetch"},
                         "the one slot is in use when a unit could be gathered early",
                         "set shard.slots = 2 or more, or shard.prefetch = off"});
    }
    check_resharding(shard, found);
}

void check_sums(const Deck& deck, std::vector<Contradiction>& found) {
    if (deck.reduce.accumulation == Accumulation::kUnsharded &&
        deck.reduce.order == ReduceOrder::kTree) {
        found.push_back({{"reduce.accumulation", "reduce.order"},
                         "a rank that adds its own micro-batches first leaves the tree's order",
                         "set reduce.order = fast, or reduce.accumulation = auto"});
    }
    const Precision& precision = deck.precision;
    const bool dynamic = precision.param == DType::kFloat16 && precision.loss_scale == 0.0;
    if (dynamic && precision.initial_scale < precision.min_scale) {
        found.push_back({{"precision.initial_scale", "precision.min_scale"},
                         "the loss scale would start below its minimum",
                         fmt::format("set precision.min_scale = {} or less, or a larger "
                                     "precision.initial_scale",
                                     precision.initial_scale)});
    }
}

/// What a GPU does otherwise or not at all.
void check_device(const Deck& deck, std::vector<Contradiction>& found) {
    const bool cuda = deck.device.kind == Processor::kCuda;
    const Backend wrong = cuda ? Backend::kMpi : Backend::kNccl;
    if (deck.comm.backend == wrong) {
        found.push_back(
            {{"comm.backend", "device.kind"},
             cuda ? "memory of GPUs is exchanged by NCCL" : "NCCL exchanges memory of GPUs only",
             "set comm.backend = auto"});
    }
    if (!cuda) return;
    if (deck.reduce.order == ReduceOrder::kTree) {
        found.push_back({{"reduce.order", "device.kind"},
                         "NCCL adds gradients in an order of its own",
                         "set reduce.order = fast"});
    }
    if (deck.shard.reshard_after_forward.kind == ReshardAfterForward::Kind::kGroup) {
        found.push_back({{"shard.reshard_after_forward", "device.kind"},
                         "GPUs gather over the whole shard group",
                         "set shard.reshard_after_forward = on"});
    }
    if (deck.run.measure_peak) {
        found.push_back({{"run.measure_peak", "device.kind"},
                         "it measures CPUs",
                         "set run.measure_peak = off, and run.peak_gflops to what a GPU can do"});
    }
    if (deck.model.family == Family::kTorchScript || deck.model.family == Family::kCustom) {
        found.push_back({{"model.family", "device.kind"},
                         "models of one's own compute on CPUs",
                         "set device.kind = cpu"});
    }
}

void check_trace(const Deck& deck, std::vector<Contradiction>& found) {
    const auto late = std::ranges::find_if(
        deck.trace.steps, [&](std::int64_t step) { return step > deck.train.steps; });
    if (late == deck.trace.steps.end()) return;
    found.push_back({{"trace.steps", "train.steps"},
                     fmt::format("step {} would never be recorded", *late),
                     fmt::format("name steps up to {}", deck.train.steps)});
}

void check_fault(const Deck& deck, std::vector<Contradiction>& found) {
    const auto within_run = [&](std::string key, std::int64_t step) {
        if (step <= deck.train.steps) return;
        const std::string remedy = fmt::format("set {} = {} or less", key, deck.train.steps);
        found.push_back({{std::move(key), "train.steps"}, "the fault would never happen", remedy});
    };
    within_run("fault.throw_at_step", deck.fault.throw_at_step);
    within_run("fault.hang_at_step", deck.fault.hang_at_step);
    within_run("fault.stray_collective_at_step", deck.fault.stray_collective_at_step);
    if (deck.fault.kill_in_save >= SaveStage::kBeforeManifest && deck.fault.rank != 0) {
        found.push_back({{"fault.kill_in_save", "fault.rank"},
                         "rank 0 alone passes that stage",
                         "set fault.rank = 0"});
    }
}

}  // namespace

std::vector<Contradiction> contradictions(const Deck& deck) {
    std::vector<Contradiction> found;
    check_run(deck, found);
    check_model(deck, found);
    check_data(deck, found);
    check_generate(deck.generate, found);
    check_train(deck, found);
    check_elasticity(deck, found);
    check_optimizer(deck, found);
    check_sharding(deck, found);
    check_sums(deck, found);
    check_device(deck, found);
    check_trace(deck, found);
    check_fault(deck, found);
    return found;
}

}  // namespace fullshard::config
