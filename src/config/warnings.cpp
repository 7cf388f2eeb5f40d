#include "config/checks.h"
#include "config/key_table.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::config {
namespace {

void add_rarely_meant(const Deck& deck, std::vector<std::string>& result) {
    if (deck.model.family == Family::kSimpleTransformer &&
        deck.model.attention == Attention::kBidirectional) {
        result.push_back(
            "model.attention = bidirectional with shifted targets: every position sees the token "
            "it is to predict, so the loss falls without the model learning to predict; set "
            "model.attention = causal");
    }
    const bool synthetic = deck.data.source == Source::kSynthetic && deck.data.sources.empty();
    if (!synthetic && deck.data.targets == Targets::kRolled) {
        result.push_back(
            "data.targets = rolled on real data: the last position of a sequence is to predict the "
            "sequence's first token, not the one that follows in the text; set data.targets = "
            "next");
    }
    const std::int64_t pretrained = deck.model.max_positions;
    if (deck.model.family == Family::kLlama && pretrained > 0 && deck.data.sequence > pretrained) {
        result.push_back(fmt::format(
            "data.sequence = {} is longer than the model's {} positions (model.max_positions); set "
            "model.rope_scaling, or a shorter data.sequence",
            deck.data.sequence, pretrained));
    }
    if (deck.precision.reduce == DType::kFloat16 && deck.precision.param != DType::kFloat16) {
        result.push_back(fmt::format(
            "precision.reduce = fp16 with precision.param = {}: gradients are summed in fp16 "
            "without a loss scale, so those below 6e-8 vanish and those above 65504 overflow; set "
            "precision.reduce = bf16 or fp32",
            name_of(deck.precision.param)));
    }
}

/// Finds keys that differ from their defaults though nothing reads them. A key that is set to its
/// default is passed over: an effective deck sets every key.
class IdleKeys {
  public:
    IdleKeys(const Deck& deck, std::vector<std::string>& result) : deck_(deck), result_(result) {}

    void report(const std::vector<std::string>& keys, std::string_view because) {
        for (const std::string& name : keys) {
            const std::optional<Key> key = find_key(name);
            const std::string value = key->text(deck_);
            if (value == default_text(*key)) continue;
            result_.push_back(fmt::format("{} = {} ({}) has no effect: {}", name, value,
                                          origin_of(deck_, name), because));
        }
    }

  private:
    const Deck& deck_;
    std::vector<std::string>& result_;
};

/// Keys of the model by the families that read them.
void add_idle_model_keys(const Deck& deck, IdleKeys& idle) {
    const Family family = deck.model.family;
    if (family == Family::kCustom) return;  // it may read what it likes
    const bool simple = family == Family::kSimpleTransformer;
    const bool llama = family == Family::kLlama;
    const bool decoder = llama || family == Family::kGpt2;
    const auto only = [&](bool reads, const std::vector<std::string>& keys,
                          std::string_view readers) {
        if (!reads) idle.report(keys, fmt::format("it is read for model.family = {}", readers));
    };
    only(family == Family::kTorchScript, {"model.path"}, "torchscript");
    only(simple || decoder,
         {"model.d_model", "model.num_heads", "model.num_layers", "model.d_ff",
          "model.tie_embeddings", "model.max_positions"},
         "simple_transformer, gpt2, llama");
    only(simple, {"model.activation", "model.norm_first", "model.attention", "model.positions"},
         "simple_transformer");
    only(simple || family == Family::kGpt2, {"model.dropout"}, "simple_transformer, gpt2");
    only(decoder, {"model.config", "model.pad_vocab_to", "model.norm_eps", "model.init_deviation"},
         "gpt2, llama");
    only(llama, {"model.num_kv_heads", "model.head_size", "model.rope_theta", "model.rope_scaling"},
         "llama");
    if (simple || decoder) {
        idle.report({"precision.buffer"}, "the built-in models have no buffers");
    }
    const RopeScaling scaling = llama ? deck.model.rope_scaling : RopeScaling::kNone;
    const auto scaled = [&](bool reads, const std::vector<std::string>& keys,
                            std::string_view readers) {
        if (!reads)
            idle.report(keys, fmt::format("it is read for model.rope_scaling = {}", readers));
    };
    scaled(scaling != RopeScaling::kNone, {"model.rope_factor"}, "linear, dynamic, llama3, yarn");
    scaled(scaling != RopeScaling::kNone && scaling != RopeScaling::kLinear,
           {"model.rope_original_positions"}, "dynamic, llama3, yarn");
    scaled(scaling == RopeScaling::kLlama3,
           {"model.rope_low_freq_factor", "model.rope_high_freq_factor"}, "llama3");
    scaled(scaling == RopeScaling::kYarn,
           {"model.rope_beta_fast", "model.rope_beta_slow", "model.rope_attention_factor"}, "yarn");
}

void add_idle_data_keys(const Deck& deck, IdleKeys& idle) {
    const Data& data = deck.data;
    if (!data.sources.empty()) {
        idle.report({"data.source", "data.synthetic_sequences", "data.validation_path"},
                    "sections [data.source.NAME] take its place");
    } else if (data.source == Source::kSynthetic) {
        idle.report({"data.path", "data.validation_path", "data.packing", "data.document_end"},
                    "data.source = synthetic reads no files and has no documents");
    } else {
        idle.report({"data.synthetic_sequences"}, "files have their own size");
    }
    if (data.sources.empty() && !data.validation_path.empty()) {
        idle.report({"data.validation_fraction"}, "data.validation_path is held out");
    } else if (data.sources.empty() && data.validation_fraction == 0.0) {
        idle.report({"train.eval_max_sequences"}, "data.validation_fraction = 0 holds nothing out");
    }
}

void add_idle_training_keys(const Deck& deck, IdleKeys& idle) {
    if (!deck.elasticity.enabled) {
        idle.report({"elasticity.max_train_batch_size", "elasticity.micro_batch_sizes",
                     "elasticity.min_ranks", "elasticity.max_ranks",
                     "elasticity.prefer_larger_batch", "elasticity.ranks_per_node"},
                    "elasticity.enabled = off");
    }
    if (deck.schedule.kind == ScheduleKind::kConstant) {
        idle.report({"schedule.min_lr_ratio"}, "schedule.kind = constant has no decay");
    }
    for (const ParameterGroup& group : deck.optimizer.groups) {
        if (!group.frozen) continue;
        const std::string section = "optimizer.group." + group.name;
        idle.report({section + ".lr", section + ".weight_decay"},
                    fmt::format("{}.frozen = on leaves the parameters as they are", section));
    }
    if (deck.precision.param != DType::kFloat16) {
        idle.report({"precision.loss_scale", "precision.initial_scale", "precision.scale_window",
                     "precision.scale_hysteresis", "precision.min_scale"},
                    "losses are scaled for precision.param = fp16 only");
    } else if (deck.precision.loss_scale > 0.0) {
        idle.report({"precision.initial_scale", "precision.scale_window",
                     "precision.scale_hysteresis", "precision.min_scale"},
                    "precision.loss_scale is fixed; 0 makes it dynamic");
    } else {
        idle.report({"train.on_nonfinite"}, "dynamic loss scaling skips such steps by itself");
    }
}

void add_idle_sharding_keys(const Deck& deck, IdleKeys& idle) {
    const Shard& shard = deck.shard;
    if (shard.wrap_policy != WrapPolicy::kSize) {
        idle.report({"shard.min_num_params"}, "it is read for shard.wrap_policy = size");
    }
    if (shard.strategy == Strategy::kNoShard) {
        idle.report({"shard.store", "shard.slots", "shard.prefetch", "shard.reshard_after_forward"},
                    "shard.strategy = no_shard keeps whole parameters on every rank");
    } else if (shard.store == Store::kResident) {
        idle.report({"shard.prefetch", "shard.reshard_after_forward"},
                    "shard.store = resident holds every unit whole, once a node");
    }
}

void add_idle_keys_of_cpus(const Deck& deck, IdleKeys& idle) {
    if (deck.device.kind != Processor::kCuda) return;
    idle.report({"shard.store", "comm.node_shared", "comm.progress_thread", "fault.delay_us"},
                "GPUs gather into slots of their own and exchange by themselves");
    idle.report({"kernels.gemm"}, "GPUs multiply by cuBLAS");
}

void add_faults(const Fault& fault, std::vector<std::string>& result) {
    const auto in_step = [&](std::int64_t step, std::string_view key, std::string_view what) {
        if (step == 0) return;
        result.push_back(fmt::format("FAULT INJECTION: rank {} will {} in step {} ({}, fault.rank)",
                                     fault.rank, what, step, key));
    };
    in_step(fault.throw_at_step, "fault.throw_at_step", "throw");
    in_step(fault.hang_at_step, "fault.hang_at_step", "hang");
    in_step(fault.stray_collective_at_step, "fault.stray_collective_at_step",
            "call a stray collective");
    if (fault.slow_step_s > 0.0) {
        result.push_back(
            fmt::format("FAULT INJECTION: each step of rank {} takes {} s longer "
                        "(fault.slow_step_s, fault.rank)",
                        fault.rank, fault.slow_step_s));
    }
    if (fault.kill_in_save != SaveStage::kNone) {
        result.push_back(
            fmt::format("FAULT INJECTION: rank {} will be killed in a save (fault.kill_in_save, "
                        "fault.rank)",
                        fault.rank));
    }
    if (fault.delay_us > 0) {
        result.push_back(
            fmt::format("FAULT INJECTION: ranks are delayed by up to {} us at "
                        "synchronisation points (fault.delay_us); times mean nothing",
                        fault.delay_us));
    }
    if (fault.poison) {
        result.push_back(
            "FAULT INJECTION: slots are filled with NaN between uses (fault.poison); times mean "
            "nothing");
    }
}

}  // namespace

bool happens_to_a_rank(const Fault& fault) {
    return fault.throw_at_step > 0 || fault.hang_at_step > 0 ||
           fault.stray_collective_at_step > 0 || fault.slow_step_s > 0.0 ||
           fault.kill_in_save != SaveStage::kNone;
}

std::vector<std::string> warnings(const Deck& deck) {
    std::vector<std::string> result;
    add_rarely_meant(deck, result);
    IdleKeys idle(deck, result);
    add_idle_model_keys(deck, idle);
    add_idle_data_keys(deck, idle);
    add_idle_training_keys(deck, idle);
    add_idle_sharding_keys(deck, idle);
    add_idle_keys_of_cpus(deck, idle);
    if (!happens_to_a_rank(deck.fault)) {
        idle.report({"fault.rank"}, "no fault of a rank is asked for");
    }
    add_faults(deck.fault, result);
    return result;
}

}  // namespace fullshard::config
