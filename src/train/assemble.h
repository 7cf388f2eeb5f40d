// From deck sections to what the modules take: the only code that knows both.
#pragma once

#include "comm/topology.h"
#include "config/batch.h"
#include "config/deck.h"
#include "model/model.h"
#include "optim/adamw.h"
#include "optim/loss_scaler.h"
#include "optim/schedule.h"
#include "shard/strategy.h"
#include "spec/simple_transformer.h"

#include <functional>
#include <memory>
#include <optional>

namespace fullshard::train {

spec::SimpleTransformer model_of(const config::Model& model, const config::Data& data);
optim::Schedule schedule_of(const config::Optimizer& optimizer, const config::Schedule& schedule,
                            std::int64_t steps);
optim::AdamWOptions adamw_of(const config::Optimizer& optimizer);
/// None where the precision needs no scaling of losses: it is for fp16 only.
std::optional<optim::LossScalerOptions> loss_scaling_of(const config::Precision& precision);

const shard::Strategy& strategy_of(const config::Shard& shard);
shard::StorePreference preference_of(const config::Shard& shard);
shard::Wrap wrap_of(const config::Shard& shard);
shard::Prefetch prefetch_of(const config::Shard& shard);
shard::StoreOptions store_options_of(const config::Deck& deck, const config::Batch& batch);

/// Makes the model of a program that was built with one of its own, from whatever keys it reads.
using ModelFactory = std::function<std::shared_ptr<const model::Model>(const config::Deck&)>;

/// The model of the deck's family; `custom` makes it for model.family = custom. Throws UsageError
/// for that family where the program has none, and for TorchScript files that cannot be trained.
std::shared_ptr<const model::Model> make_model(const config::Deck& deck,
                                               const ModelFactory& custom);

/// Learning rate and weight decay of a parameter: its group's, or the deck's, by which matrices
/// decay and vectors do not. with_groups() has checked the groups.
optim::ParameterSettings settings_of(const spec::ParameterSpec& parameter,
                                     const config::Optimizer& optimizer);

/// Which settings a parameter has.
using SettingsRule = std::function<optim::ParameterSettings(const spec::ParameterSpec&)>;

/// The optimizer over this rank's master shards; padding and frozen parameters are left alone.
/// Without a rule the options' default settings hold.
/// `state` is of the store's device.
optim::AdamW make_optimizer(
    const optim::AdamWOptions& options, const shard::Layout& layout, shard::UnitStore& store,
    const SettingsRule& settings = {},
    std::unique_ptr<optim::StateDevice> state = std::make_unique<optim::HostState>());

/// Bytes of the moments of the shards of this index: they end with the last trainable element.
std::int64_t planned_moment_bytes(const shard::Layout& layout, std::int64_t shard);

}  // namespace fullshard::train
