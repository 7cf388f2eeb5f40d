#include "train/datasets.h"

#include "base/error.h"
#include "base/rng.h"
#include "data/entropy.h"
#include "data/hdf5_source.h"
#include "data/jsonl_source.h"
#include "data/synthetic_source.h"
#include "data/text_source.h"
#include "data/token_files.h"
#include "train/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

namespace fullshard::train {

namespace {

// Random streams of a run, derived from run.seed; 3 is that of injected faults.
constexpr std::uint64_t kDataOrderStream = 1;
constexpr std::uint64_t kSyntheticStream = 2;

using Tokens = std::shared_ptr<const data::TokenSource>;

data::Cutting cutting_of(const config::Data& options) {
    data::Cutting cutting{.document_mask = options.document_mask};
    if (options.targets == config::Targets::kRolled) cutting.targets = data::TargetRule::kRolled;
    if (options.packing == config::Packing::kDocuments) cutting.packing = data::Packing::kDocuments;
    if (options.packing == config::Packing::kNone) cutting.packing = data::Packing::kNone;
    return cutting;
}

/// Of data.source, or of the only source where there are no sections.
std::string_view name_of(config::Source kind) {
    switch (kind) {
        case config::Source::kSynthetic:
            return "synthetic";
        case config::Source::kText:
            return "text";
        case config::Source::kLlmc:
            return "llmc";
        case config::Source::kMegatron:
            return "megatron";
        case config::Source::kHdf5:
            return "hdf5";
        case config::Source::kJsonl:
            break;
    }
    return "jsonl";
}

std::vector<config::DataSource> sources_of(const config::Data& options) {
    if (!options.sources.empty()) return options.sources;
    return {{.name = std::string(name_of(options.source)),
             .kind = options.source,
             .path = options.path,
             .validation_path = options.validation_path}};
}

/// A part of a source's tokens.
struct Part {
    Tokens tokens;
    data::TokenRange range;
};

/// Training and held-out tokens of one source; an empty range stands for what it does not have.
struct Parts {
    Part training;
    Part validation;
};

class Opener {
  public:
    Opener(const config::Data& options, std::int64_t vocab_size, std::uint64_t seed,
           std::vector<std::string>& notes)
        : options_(options), vocab_size_(vocab_size), seed_(seed), notes_(notes) {}

    Parts open(const config::DataSource& source, Purpose purpose) {
        Parts parts;
        if (source.validation_path.empty()) {
            const Tokens tokens = open_path(source, source.path, "path");
            const auto split =
                data::split(*tokens, options_.sequence, options_.validation_fraction);
            return {{tokens, split.training}, {tokens, split.validation}};
        }
        parts.validation = whole(open_path(source, source.validation_path, "validation_path"));
        if (purpose == Purpose::kTraining)
            parts.training = whole(open_path(source, source.path, "path"));
        return parts;
    }

    std::uint64_t fingerprint() const { return fingerprint_; }

  private:
    static Part whole(Tokens tokens) {
        const data::TokenRange all{0, tokens->size()};
        return {std::move(tokens), all};
    }

    Tokens open_path(const config::DataSource& source, const std::filesystem::path& path,
                     std::string_view key) {
        if (path.empty() && source.kind != config::Source::kSynthetic)
            throw UsageError(fmt::format("{} is empty: name the {} data",
                                         options_.sources.empty()
                                             ? fmt::format("data.{}", key)
                                             : fmt::format("data.source.{}.{}", source.name, key),
                                         name_of(source.kind)));
        Tokens tokens = with_documents(source, open_kind(source.kind, path));
        fingerprint_ = mix(fingerprint_, data::fingerprint(*tokens));
        return tokens;
    }

    Tokens open_kind(config::Source kind, const std::filesystem::path& path) {
        switch (kind) {
            case config::Source::kSynthetic:
                return std::make_shared<data::SyntheticSource>(mix(seed_, kSyntheticStream),
                                                               options_.synthetic_sequences,
                                                               options_.sequence, vocab_size_);
            case config::Source::kText: {
                auto text = data::load_text(path);
                notes_.insert(notes_.end(), text->notes().begin(), text->notes().end());
                data::require_vocabulary(*text, vocab_size_);
                note_bytes(path);
                return text;
            }
            case config::Source::kLlmc:
                return data::open_llmc(path, vocab_size_);
            case config::Source::kMegatron:
                return data::open_megatron(path, vocab_size_);
            case config::Source::kHdf5:
                return data::open_hdf5(path, vocab_size_);
            case config::Source::kJsonl:
                break;
        }
        auto examples = data::load_jsonl(
            path, {.vocab_size = vocab_size_, .document_end = options_.document_end});
        if (examples->empty_lines() > 0)
            notes_.push_back(fmt::format("left out {} lines of {}: they have no answer",
                                         examples->empty_lines(), path.string()));
        if (examples->has_text()) note_bytes(path);
        return examples;
    }

    /// Text is not what a pretrained model knows: its tokens are those of its tokenizer.
    void note_bytes(const std::filesystem::path& path) {
        constexpr std::int64_t kLargestByteVocabulary = 512;  // with some tokens of one's own
        if (!options_.tokenizer.empty()) {
            throw UsageError(fmt::format(
                "{} is text, read as bytes, but data.tokenizer = {} says that tokens are others: "
                "make a token file with `tools/tokenize.py prepare`, or leave data.tokenizer empty",
                path.string(), options_.tokenizer.string()));
        }
        if (vocab_size_ <= kLargestByteVocabulary) return;
        notes_.push_back(fmt::format(
            "{} is text, read as bytes, which are 256 of the model's {} tokens; for a model with a "
            "tokenizer make a token file with `tools/tokenize.py prepare`",
            path.string(), vocab_size_));
    }

    /// Finds documents where they are needed and the source does not store them.
    Tokens with_documents(const config::DataSource& source, Tokens tokens) {
        const bool needed = options_.document_mask || options_.document_end >= 0 ||
                            options_.packing != config::Packing::kStream;
        if (!needed || source.kind == config::Source::kSynthetic || !tokens->documents().empty())
            return tokens;
        const std::size_t files = tokens->file_starts().size();
        tokens = data::with_documents(std::move(tokens), options_.document_end);
        if (options_.document_end >= 0 && tokens->documents().size() == files)
            notes_.push_back(fmt::format("no document of {} ends with data.document_end = {}",
                                         tokens->name(), options_.document_end));
        return tokens;
    }

    const config::Data& options_;
    std::int64_t vocab_size_;
    std::uint64_t seed_;
    std::vector<std::string>& notes_;
    std::uint64_t fingerprint_ = 0;
};

NamedValidation held_out(const config::DataSource& source, const Part& part,
                         const config::Data& options, std::int64_t micro_batch,
                         std::int64_t most_sequences) {
    data::Windows windows(part.tokens, part.range, options.sequence, cutting_of(options));
    if (most_sequences > 0) windows = windows.head(most_sequences);
    std::optional<double> entropy;
    if (source.kind == config::Source::kText)
        entropy = data::unigram_entropy(*part.tokens, windows.range());
    return {source.name, data::ValidationLoader(std::move(windows), micro_batch), entropy};
}

/// What the log says of a source whose number in the training loader is `number`.
std::string describe(const config::DataSource& source, const data::TrainingLoader& training,
                     std::int64_t number, std::int64_t held_out_sequences) {
    const data::Windows& windows = training.windows(number);
    return fmt::format(
        "{}{}: {} tokens, {} sequences of {} to train on ({:.1f} steps an epoch), {} held out",
        training.sources().size() > 1 ? source.name + ": " : "", windows.source().name(),
        count_text(windows.source().size()), windows.count(), windows.sequence(),
        training.steps_per_epoch(number), held_out_sequences);
}

}  // namespace

Datasets open_data(const config::Data& options, std::int64_t vocab_size, std::uint64_t seed,
                   std::int64_t micro_batch, std::int64_t micro_batches,
                   std::int64_t eval_max_sequences, Purpose purpose) {
    Datasets datasets;
    Opener opener(options, vocab_size, seed, datasets.notes);
    const auto sources = sources_of(options);
    std::vector<data::TrainingSource> training;
    std::vector<std::int64_t> held_out_sequences;
    for (const config::DataSource& source : sources) {
        const Parts parts = opener.open(source, purpose);
        held_out_sequences.push_back(0);
        if (parts.validation.range.count > 0) {
            datasets.validation.push_back(
                held_out(source, parts.validation, options, micro_batch, eval_max_sequences));
            const data::Windows& windows = datasets.validation.back().loader.windows();
            held_out_sequences.back() = windows.count();
            if (purpose == Purpose::kEvaluation)
                datasets.description.push_back(fmt::format("{}: {}: {} held-out sequences of {}",
                                                           source.name, windows.source().name(),
                                                           windows.count(), windows.sequence()));
        }
        if (purpose == Purpose::kTraining)
            training.push_back({source.name,
                                data::Windows(parts.training.tokens, parts.training.range,
                                              options.sequence, cutting_of(options)),
                                source.weight});
    }
    datasets.fingerprint = opener.fingerprint();
    if (purpose == Purpose::kTraining) {
        datasets.training.emplace(std::move(training),
                                  data::TrainingLoader::Shape{micro_batch, micro_batches},
                                  mix(seed, kDataOrderStream), options.shuffle);
        for (std::size_t s = 0; s < sources.size(); ++s)
            datasets.description.push_back(describe(sources[s], *datasets.training,
                                                    static_cast<std::int64_t>(s),
                                                    held_out_sequences[s]));
    }
    return datasets;
}

}  // namespace fullshard::train
