#include "train/assemble.h"

#include "base/rng.h"
#include "data/entropy.h"
#include "data/synthetic_source.h"
#include "data/text_source.h"
#include "train/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace fullshard::train {

namespace {
// Random streams of a run, all derived from run.seed.
constexpr std::uint64_t kDataOrderStream = 1;
constexpr std::uint64_t kSyntheticStream = 2;
constexpr std::uint64_t kFaultStream = 3;

struct Source {
    std::shared_ptr<const data::TokenSource> tokens;
    std::vector<std::string> notes;
};

Source open_source(const config::Data& data, std::int64_t vocab_size, std::uint64_t seed) {
    if (data.source == config::Source::kSynthetic) {
        return {
            std::make_shared<data::SyntheticSource>(
                mix(seed, kSyntheticStream), data.synthetic_sequences, data.sequence, vocab_size),
            {}};
    }
    const auto text = data::load_text(data.path);
    return {text, text->notes()};
}

/// Equal on two ranks exactly when they read the same tokens.
std::uint64_t fingerprint(const data::TokenSource& source) {
    std::vector<std::int64_t> chunk;
    std::uint64_t hash = 0;
    for (std::int64_t first = 0; first < source.size();
         first += static_cast<std::int64_t>(chunk.size())) {
        chunk.resize(
            static_cast<std::size_t>(std::min<std::int64_t>(65536, source.size() - first)));
        source.read(first, chunk);
        for (const std::int64_t token : chunk) hash = mix(hash, static_cast<std::uint64_t>(token));
    }
    return hash;
}

}  // namespace

spec::SimpleTransformer model_of(const config::Model& model, const config::Data& data) {
    return {.vocab_size = model.vocab_size,
            .d_model = model.d_model,
            .num_heads = model.num_heads,
            .num_layers = model.num_layers,
            .d_ff = model.d_ff,
            .max_positions = model.positions == config::Positions::kLearned ? data.sequence : 0,
            .dropout = model.dropout,
            .activation = model.activation == config::Activation::kRelu ? spec::Activation::kRelu
                                                                        : spec::Activation::kGelu,
            .norm_first = model.norm_first,
            .causal = model.attention == config::Attention::kCausal};
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

shard::StoreOptions store_options_of(const config::Shard& shard, const config::Fault& fault,
                                     std::uint64_t seed, const config::Batch& batch) {
    return {.parameter_slots = shard.slots,
            .gradient_slots = shard.slots,
            .micro_batches = batch.grad_accum_steps,
            .faults = {fault.delay_us, fault.poison, mix(seed, kFaultStream)}};
}

const shard::Strategy& strategy_of(const config::Shard& shard) {
    return shard::find_strategy(shard.strategy == config::Strategy::kFullShard ? "full_shard"
                                                                               : "no_shard");
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

Datasets open_data(const config::Data& options, std::int64_t vocab_size, std::uint64_t seed,
                   std::int64_t micro_batch, std::int64_t micro_batches,
                   std::int64_t eval_max_sequences) {
    const Source source = open_source(options, vocab_size, seed);
    data::require_vocabulary(*source.tokens, vocab_size);
    data::Split parts = data::split(*source.tokens, options.sequence, options.validation_fraction);
    if (eval_max_sequences > 0 && parts.validation.count / options.sequence >= eval_max_sequences) {
        parts.validation.count = eval_max_sequences * options.sequence;
    }
    const auto rule = options.targets == config::Targets::kNext ? data::TargetRule::kNext
                                                                : data::TargetRule::kRolled;
    data::TrainingLoader training(
        data::Windows(source.tokens, parts.training, options.sequence, rule),
        {micro_batch, micro_batches}, mix(seed, kDataOrderStream), options.shuffle);
    Datasets datasets{std::move(training), {}, {}, source.notes, fingerprint(*source.tokens), {}};
    if (parts.validation.count > 0) {
        datasets.validation.emplace(
            data::Windows(source.tokens, parts.validation, options.sequence, rule), micro_batch);
        if (options.source == config::Source::kText) {
            datasets.unigram_entropy = data::unigram_entropy(*source.tokens, parts.validation);
        }
    }
    datasets.description = fmt::format(
        "{}: {} tokens, {} sequences of {} to train on ({:.1f} steps an epoch), {} held out",
        source.tokens->name(), count_text(source.tokens->size()),
        datasets.training.windows().count(), options.sequence, datasets.training.steps_per_epoch(),
        datasets.validation ? datasets.validation->windows().count() : 0);
    return datasets;
}

optim::AdamW make_optimizer(const optim::AdamWOptions& options, const shard::Layout& layout,
                            shard::UnitStore& store) {
    std::vector<optim::OptimizerShard> shards;
    for (std::size_t i = 0; i < layout.units.size(); ++i) {
        const auto index = static_cast<std::int64_t>(i);
        const shard::Unit& unit = layout.units[i];
        const std::span<float> master = store.master(index);
        std::vector<optim::ShardRange> ranges;
        for (const shard::ShardPiece& piece :
             unit.pieces(store.owned_begin(index), static_cast<std::int64_t>(master.size()))) {
            const spec::ParameterSpec& parameter = unit.parameters()[piece.parameter];
            if (!parameter.trainable) continue;
            ranges.push_back({piece.shard_begin, piece.shard_begin + piece.count,
                              parameter.decay == spec::DecayClass::kDecay});
        }
        shards.push_back({master, std::move(ranges)});
    }
    return {options, std::move(shards)};
}

}  // namespace fullshard::train
