#include "train/datasets.h"

#include "base/rng.h"
#include "data/entropy.h"
#include "data/synthetic_source.h"
#include "data/text_source.h"
#include "train/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace fullshard::train {

namespace {

// Random streams of a run, derived from run.seed; 3 is that of injected faults.
constexpr std::uint64_t kDataOrderStream = 1;
constexpr std::uint64_t kSyntheticStream = 2;

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

}  // namespace fullshard::train
