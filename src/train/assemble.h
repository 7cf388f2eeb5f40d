// From deck sections to what the modules take: the only code that knows both.
#pragma once

#include "comm/topology.h"
#include "config/batch.h"
#include "config/deck.h"
#include "data/loader.h"
#include "optim/adamw.h"
#include "optim/schedule.h"
#include "shard/strategy.h"
#include "spec/simple_transformer.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fullshard::train {

spec::SimpleTransformer model_of(const config::Model& model, const config::Data& data);
optim::Schedule schedule_of(const config::Optimizer& optimizer, const config::Schedule& schedule,
                            std::int64_t steps);
optim::AdamWOptions adamw_of(const config::Optimizer& optimizer);
shard::StoreOptions store_options_of(const config::Shard& shard, const config::Fault& fault,
                                     std::uint64_t seed, const config::Batch& batch);
const shard::Strategy& strategy_of(const config::Shard& shard);
shard::StorePreference preference_of(const config::Shard& shard);

/// Training and held-out data, and what there is to say about them.
struct Datasets {
    data::TrainingLoader training;
    std::optional<data::ValidationLoader> validation;  ///< none when nothing is held out
    std::string description;                           ///< one line for the log
    std::vector<std::string> notes;                    ///< what was left out and why
    std::uint64_t fingerprint = 0;                     ///< of all tokens
    /// Of text: entropy of the held-out tokens' own distribution, nats: what no model without
    /// context beats.
    std::optional<double> unigram_entropy;
};

/// Throws DataError for a source that is missing, too small, or does not fit the vocabulary.
/// `micro_batches` counts those of a step over all ranks; evaluations use at most
/// `eval_max_sequences` held-out sequences, all for 0. Not collective.
Datasets open_data(const config::Data& data, std::int64_t vocab_size, std::uint64_t seed,
                   std::int64_t micro_batch, std::int64_t micro_batches,
                   std::int64_t eval_max_sequences);

/// The optimizer over this rank's master shards; padding and frozen parameters are left alone.
optim::AdamW make_optimizer(const optim::AdamWOptions& options, const shard::Layout& layout,
                            shard::UnitStore& store);

}  // namespace fullshard::train
