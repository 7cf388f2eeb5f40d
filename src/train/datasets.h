// The data of a deck.
#pragma once

#include "config/deck.h"
#include "data/loader.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fullshard::train {

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

}  // namespace fullshard::train
