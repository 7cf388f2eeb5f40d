// The data of a deck.
#pragma once

#include "config/deck.h"
#include "data/loader.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fullshard::train {

/// Held-out data of one source.
struct NamedValidation {
    std::string name;  ///< NAME of [data.source.NAME], or data.source where there are no sections
    data::ValidationLoader loader;
    /// Of text: entropy of these tokens' own distribution, nats: what no model without context
    /// beats.
    std::optional<double> unigram_entropy;
};

/// Training and held-out data, and what there is to say about them.
struct Datasets {
    std::optional<data::TrainingLoader> training;  ///< none when only evaluations were asked for
    std::vector<NamedValidation> validation;  ///< of the sources of which something is held out
    std::vector<std::string> description;     ///< a line for the log for each source
    std::vector<std::string> notes;           ///< what was left out and why
    std::uint64_t fingerprint = 0;            ///< of all tokens
};

enum class Purpose : std::uint8_t { kTraining, kEvaluation };

/// Throws DataError for a source that is missing, damaged, too small, or does not fit the
/// vocabulary, UsageError for keys that contradict each other. `micro_batches` counts those of a
/// step over all ranks; evaluations use at most `eval_max_sequences` held-out sequences of each
/// source, all for 0. For kEvaluation, sources with a validation_path need no path. Not collective.
Datasets open_data(const config::Data& data, std::int64_t vocab_size, std::uint64_t seed,
                   std::int64_t micro_batch, std::int64_t micro_batches,
                   std::int64_t eval_max_sequences, Purpose purpose = Purpose::kTraining);

}  // namespace fullshard::train
