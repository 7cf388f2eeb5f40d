#include "train/assemble.h"

#include "base/error.h"
#include "base/rng.h"
#include "model/gpt2.h"
#include "model/llama.h"
#include "model/simple_transformer.h"
#include "model/torchscript_model.h"
#include "train/architecture.h"
#include "train/parameter_groups.h"

#include <fmt/format.h>

#include <algorithm>

namespace fullshard::train {

namespace {

// Random stream of a run, derived from run.seed; datasets.cpp has others.
constexpr std::uint64_t kFaultStream = 3;

shard::Residency residency_of(const config::Shard& shard) {
    switch (shard.reshard_after_forward.kind) {
        case config::ReshardAfterForward::Kind::kYes:
            return shard::Residency::kWhileUsed;
        case config::ReshardAfterForward::Kind::kNo:
            return shard::Residency::kUntilUpdate;
        case config::ReshardAfterForward::Kind::kGroup:
            return shard::Residency::kSmallerGroup;
        case config::ReshardAfterForward::Kind::kAuto:
            break;
    }
    return strategy_of(shard).residency();
}

/// Adding up a rank's whole gradients before anything is sent pays where they are kept whole
/// anyway.
shard::Accumulation accumulation_of(const config::Deck& deck) {
    const bool pays = deck.reduce.order == config::ReduceOrder::kFast &&
                      deck.shard.strategy == config::Strategy::kZero1;
    const bool unsharded = deck.reduce.accumulation == config::Accumulation::kUnsharded ||
                           (deck.reduce.accumulation == config::Accumulation::kAuto && pays);
    return unsharded ? shard::Accumulation::kUnsharded : shard::Accumulation::kSharded;
}

/// The trainable parts of elements [begin, begin + count) of a unit.
std::vector<shard::ShardPiece> trainable_pieces(const shard::Unit& unit, std::int64_t begin,
                                                std::int64_t count) {
    std::vector<shard::ShardPiece> pieces = unit.pieces(begin, count);
    std::erase_if(pieces, [&](const shard::ShardPiece& piece) {
        return !unit.parameters()[piece.parameter].trainable;
    });
    return pieces;
}

}  // namespace

spec::SimpleTransformer model_of(const config::Model& model, const config::Data& data) {
    return {.vocab_size = model.vocab_size,
            .d_model = model.d_model,
            .num_heads = model.num_heads,
            .num_layers = model.num_layers,
            .d_ff = model.d_ff,
            .max_positions = model.positions == config::Positions::kLearned
                                 ? (model.max_positions > 0 ? model.max_positions : data.sequence)
                                 : 0,
            .dropout = model.dropout,
            .activation = model.activation == config::Activation::kRelu ? spec::Activation::kRelu
                                                                        : spec::Activation::kGelu,
            .norm_first = model.norm_first,
            .causal = model.attention == config::Attention::kCausal,
            .tie_embeddings = model.tie_embeddings};
}

optim::Schedule schedule_of(const config::Optimizer& optimizer, const config::Schedule& schedule,
                            std::int64_t steps) {
    const auto kind = [&] {
        switch (schedule.kind) {
            case config::ScheduleKind::kLinear:
                return optim::ScheduleKind::kLinear;
            case config::ScheduleKind::kCosine:
                return optim::ScheduleKind::kCosine;
            case config::ScheduleKind::kConstant:
                break;
        }
        return optim::ScheduleKind::kConstant;
    };
    return {kind(), optimizer.lr, schedule.warmup_steps, steps, schedule.min_lr_ratio};
}

optim::AdamWOptions adamw_of(const config::Optimizer& optimizer) {
    return {optimizer.beta1, optimizer.beta2, optimizer.eps, optimizer.weight_decay};
}

std::optional<optim::LossScalerOptions> loss_scaling_of(const config::Precision& precision) {
    if (precision.param != DType::kFloat16) return std::nullopt;
    return optim::LossScalerOptions{.initial = precision.initial_scale,
                                    .window = precision.scale_window,
                                    .hysteresis = precision.scale_hysteresis,
                                    .minimum = precision.min_scale,
                                    .fixed = precision.loss_scale};
}

const shard::Strategy& strategy_of(const config::Shard& shard) {
    const auto name = [&] {
        switch (shard.strategy) {
            case config::Strategy::kNoShard:
                return "no_shard";
            case config::Strategy::kZero1:
                return "zero1";
            case config::Strategy::kShardGradOp:
                return "shard_grad_op";
            case config::Strategy::kHybridShard:
                return "hybrid_shard";
            case config::Strategy::kHybridShardZero2:
                return "hybrid_shard_zero2";
            case config::Strategy::kFullShard:
                break;
        }
        return "full_shard";
    };
    return shard::find_strategy(name());
}

shard::Wrap wrap_of(const config::Shard& shard) {
    const auto policy = [&] {
        switch (shard.wrap_policy) {
            case config::WrapPolicy::kModel:
                return shard::WrapPolicy::kModel;
            case config::WrapPolicy::kSize:
                return shard::WrapPolicy::kSize;
            case config::WrapPolicy::kBlock:
                break;
        }
        return shard::WrapPolicy::kBlock;
    };
    return {policy(), shard.min_num_params};
}

shard::Prefetch prefetch_of(const config::Shard& shard) {
    using Backward = shard::Prefetch::Backward;
    // Of the slots of a size one is in use, and the others can be filled ahead.
    const std::int64_t ahead = std::max<std::int64_t>(shard.slots - 1, 1);
    switch (shard.prefetch) {
        case config::Prefetch::kOff:
            return {false, Backward::kOff, ahead};
        case config::Prefetch::kForward:
            return {true, Backward::kOff, ahead};
        case config::Prefetch::kBackwardPre:
            return {false, Backward::kPre, ahead};
        case config::Prefetch::kBackwardPost:
            return {false, Backward::kPost, ahead};
        case config::Prefetch::kBoth:
            break;
    }
    return {true, Backward::kPre, ahead};
}

shard::StoreOptions store_options_of(const config::Deck& deck, const config::Batch& batch) {
    return {.compute = deck.precision.param,
            .reduce = deck.precision.reduce,
            .residency = residency_of(deck.shard),
            .regather_ranks = deck.shard.reshard_after_forward.group,
            .parameter_slots = deck.shard.slots,
            .gradient_slots = deck.shard.slots,
            .whole_gradients = strategy_of(deck.shard).gradients == shard::Holding::kReplicated,
            .micro_batches = batch.grad_accum_steps,
            .order = deck.reduce.order == config::ReduceOrder::kTree ? shard::SumOrder::kTree
                                                                     : shard::SumOrder::kFast,
            .accumulation = accumulation_of(deck),
            .faults = {deck.fault.delay_us, deck.fault.poison, mix(deck.run.seed, kFaultStream)}};
}

shard::StorePreference preference_of(const config::Shard& shard) {
    switch (shard.store) {
        case config::Store::kResident:
            return shard::StorePreference::kResident;
        case config::Store::kSlotted:
            return shard::StorePreference::kSlotted;
        case config::Store::kAuto:
            break;
    }
    return shard::StorePreference::kAuto;
}

std::shared_ptr<const model::Model> make_model(const config::Deck& deck,
                                               const ModelFactory& custom) {
    switch (deck.model.family) {
        case config::Family::kTorchScript: {
            std::vector<std::string> paths;
            for (const auto& path : deck.model.path) paths.push_back(path.string());
            return model::load_torchscript_model(paths);
        }
        case config::Family::kCustom:
            if (custom) return custom(deck);
            throw UsageError(
                "model.family = custom is for programs that are built with a model of their own; "
                "this one has none: use another family, or see src/model/CUSTOM.md");
        case config::Family::kGpt2:
            return model::make_gpt2(std::get<spec::Gpt2>(*architecture_of(deck)));
        case config::Family::kLlama:
            return model::make_llama(std::get<spec::Llama>(*architecture_of(deck)));
        case config::Family::kSimpleTransformer:
            break;
    }
    return model::make_simple_transformer(model_of(deck.model, deck.data));
}

optim::ParameterSettings settings_of(const spec::ParameterSpec& parameter,
                                     const config::Optimizer& optimizer) {
    optim::ParameterSettings settings =
        adamw_of(optimizer).default_settings(parameter.decay == spec::DecayClass::kDecay);
    const config::ParameterGroup* group = group_of(parameter.name, optimizer.groups);
    if (group == nullptr) return settings;
    if (group->weight_decay) settings.weight_decay = *group->weight_decay;
    if (group->lr) settings.lr_factor = *group->lr / optimizer.lr;
    return settings;
}

optim::AdamW make_optimizer(const optim::AdamWOptions& options, const shard::Layout& layout,
                            shard::UnitStore& store, const SettingsRule& settings,
                            std::unique_ptr<optim::StateDevice> state) {
    const auto choose = [&](const spec::ParameterSpec& parameter) {
        if (settings) return settings(parameter);
        return options.default_settings(parameter.decay == spec::DecayClass::kDecay);
    };
    std::vector<optim::OptimizerShard> shards;
    for (std::size_t i = 0; i < layout.units.size(); ++i) {
        const auto index = static_cast<std::int64_t>(i);
        const shard::Unit& unit = layout.units[i];
        const TypedSpan master = store.master(index);
        std::vector<optim::ShardRange> ranges;
        for (const shard::ShardPiece& piece :
             trainable_pieces(unit, store.owned_begin(index), master.count)) {
            ranges.push_back({piece.shard_begin, piece.shard_begin + piece.count,
                              choose(unit.parameters()[piece.parameter])});
        }
        shards.push_back({master, std::move(ranges), store.updated_copy(index)});
    }
    return {options, std::move(shards), std::move(state)};
}

std::int64_t planned_moment_bytes(const shard::Layout& layout, std::int64_t shard) {
    std::int64_t elements = 0;
    for (const shard::Unit& unit : layout.units) {
        const auto pieces = trainable_pieces(unit, shard * unit.shard_numel(), unit.shard_numel());
        if (!pieces.empty()) elements += pieces.back().shard_begin + pieces.back().count;
    }
    return optim::AdamW::state_bytes(elements);
}

}  // namespace fullshard::train
