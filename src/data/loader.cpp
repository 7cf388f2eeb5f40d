#include "data/loader.h"

#include "base/error.h"
#include "base/rng.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace fullshard::data {
namespace {

void require_positive(const char* key, std::int64_t value) {
    if (value < 1) throw UsageError(fmt::format("{} = {}: must be at least 1", key, value));
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) {
    return a / b + (a % b != 0 ? 1 : 0);
}

void shape_batch(TokenBatch& batch, std::int64_t rows, const Windows& windows) {
    const auto size = static_cast<std::size_t>(rows * windows.sequence());
    batch.tokens.resize(size);
    batch.targets.resize(size);
    const bool tells_documents = windows.cutting().document_mask;
    batch.positions.resize(tells_documents ? size : 0);
    batch.documents.resize(tells_documents ? size : 0);
    batch.batch = rows;
    batch.sequence = windows.sequence();
    batch.valid_targets = 0;
}

std::span<std::int64_t> row_of(std::vector<std::int64_t>& values, std::int64_t row,
                               std::int64_t sequence) {
    return std::span(values).subspan(static_cast<std::size_t>(row * sequence),
                                     static_cast<std::size_t>(sequence));
}

void read_row(const Windows& windows, std::int64_t index, std::int64_t row, TokenBatch& batch) {
    batch.valid_targets += windows.read(index, row_of(batch.tokens, row, batch.sequence),
                                        row_of(batch.targets, row, batch.sequence));
    if (!batch.positions.empty())
        windows.read_documents(index, row_of(batch.positions, row, batch.sequence),
                               row_of(batch.documents, row, batch.sequence));
}

void pad_row(std::int64_t row, TokenBatch& batch) {
    std::ranges::fill(row_of(batch.tokens, row, batch.sequence), kPaddingToken);
    std::ranges::fill(row_of(batch.targets, row, batch.sequence), kIgnoredTarget);
    if (batch.positions.empty()) return;
    const auto positions = row_of(batch.positions, row, batch.sequence);
    std::iota(positions.begin(), positions.end(), std::int64_t{0});
    std::ranges::fill(row_of(batch.documents, row, batch.sequence), 0);
}

std::vector<double> weights_of(std::span<const TrainingSource> sources) {
    std::vector<double> weights;
    for (const TrainingSource& source : sources) weights.push_back(source.weight);
    return weights;
}

std::vector<TrainingSource> only(Windows windows) {
    std::vector<TrainingSource> sources;
    std::string name = windows.source().name();
    sources.push_back({std::move(name), std::move(windows)});
    return sources;
}

}  // namespace

TrainingLoader::TrainingLoader(Windows windows, Shape shape, std::uint64_t seed, bool shuffle)
    : TrainingLoader(only(std::move(windows)), shape, seed, shuffle) {}

TrainingLoader::TrainingLoader(std::vector<TrainingSource> sources, Shape shape, std::uint64_t seed,
                               bool shuffle)
    : sources_(std::move(sources)),
      mixture_(weights_of(sources_), mix(seed, stable_hash("data.mixture")), shuffle),
      shape_(shape) {
    require_positive("train.micro_batch", shape.micro_batch);
    require_positive("micro-batches in a step", shape.micro_batches);
    for (const TrainingSource& source : sources_) {
        ensure(source.windows.sequence() == windows().sequence() &&
                   source.windows.cutting().document_mask == windows().cutting().document_mask,
               "all sources are cut in one way");
        const std::uint64_t own_seed =
            sources_.size() == 1 ? seed : mix(seed, stable_hash(source.name));
        samplers_.emplace_back(own_seed, source.windows.count(), shuffle);
    }
}

const Windows& TrainingLoader::windows(std::int64_t source) const {
    return sources_.at(static_cast<std::size_t>(source)).windows;
}

double TrainingLoader::steps_per_epoch(std::int64_t source) const {
    const auto samples = static_cast<double>(shape_.micro_batch * shape_.micro_batches);
    const double share = static_cast<double>(mixture_.in_block(source)) / Mixture::kBlock;
    return static_cast<double>(windows(source).count()) / (samples * share);
}

std::int64_t TrainingLoader::first_index(std::int64_t step, std::int64_t g) const {
    return (step * shape_.micro_batches + g) * shape_.micro_batch;
}

SampleId TrainingLoader::sample(std::int64_t index) const {
    const Mixture::Draw draw = mixture_.draw(index);
    return {draw.source, samplers_[static_cast<std::size_t>(draw.source)].sample(draw.index)};
}

void TrainingLoader::load(std::int64_t step, std::int64_t g, TokenBatch& batch) const {
    ensure(step >= 0 && g >= 0 && g < shape_.micro_batches, "micro-batch belongs to the step");
    shape_batch(batch, shape_.micro_batch, windows());
    const std::int64_t first = first_index(step, g);
    for (std::int64_t row = 0; row < shape_.micro_batch; ++row) {
        const SampleId id = sample(first + row);
        read_row(windows(id.source), id.window, row, batch);
    }
}

std::int64_t TrainingLoader::valid_targets(std::int64_t step) const {
    ensure(step >= 0, "step is not negative");
    std::int64_t valid = 0;
    for (std::int64_t index = first_index(step, 0); index < first_index(step + 1, 0); ++index) {
        const SampleId id = sample(index);
        valid += windows(id.source).valid_targets(id.window);
    }
    return valid;
}

void TrainingLoader::add_valid_targets(std::int64_t step, std::span<std::int64_t> by_source) const {
    ensure(step >= 0, "step is not negative");
    add_valid_targets(first_index(step, 0), first_index(step + 1, 0), by_source);
}

void TrainingLoader::add_valid_targets(std::int64_t first, std::int64_t end,
                                       std::span<std::int64_t> by_source) const {
    ensure(by_source.size() == sources_.size(), "one counter for each source");
    for (std::int64_t index = first; index < end; ++index) {
        const SampleId id = sample(index);
        by_source[static_cast<std::size_t>(id.source)] +=
            windows(id.source).valid_targets(id.window);
    }
}

std::vector<std::int64_t> TrainingLoader::valid_targets_before(std::int64_t step) const {
    ensure(step >= 0, "step is not negative");
    const std::int64_t end = first_index(step, 0);
    // Inside a block of a mixture the samples drawn so far are not the first ones of a source.
    const std::int64_t whole_blocks = sources_.size() == 1 ? end : end / Mixture::kBlock;
    std::vector<std::int64_t> valid;
    for (std::int64_t s = 0; s < std::ssize(sources_); ++s) {
        const std::int64_t in_block = sources_.size() == 1 ? 1 : mixture_.in_block(s);
        valid.push_back(valid_targets_of_first(s, whole_blocks * in_block));
    }
    if (sources_.size() > 1) add_valid_targets(whole_blocks * Mixture::kBlock, end, valid);
    return valid;
}

std::int64_t TrainingLoader::valid_targets_of_first(std::int64_t source,
                                                    std::int64_t samples) const {
    const Windows& cut = windows(source);
    const Sampler& sampler = samplers_[static_cast<std::size_t>(source)];
    const std::int64_t epoch = samples / cut.count();
    const std::int64_t rest = samples % cut.count();
    std::int64_t valid = epoch * cut.total_valid_targets();
    if (cut.uniform()) {
        const std::int64_t last = cut.count() - 1;
        valid += rest * cut.sequence();
        if (sampler.place(epoch, last) < rest) valid -= cut.sequence() - cut.valid_targets(last);
    } else {
        for (std::int64_t i = samples - rest; i < samples; ++i)
            valid += cut.valid_targets(sampler.sample(i));
    }
    return valid;
}

ValidationLoader::ValidationLoader(Windows windows, std::int64_t micro_batch)
    : windows_(std::move(windows)), micro_batch_(micro_batch) {
    require_positive("train.micro_batch", micro_batch);
}

std::int64_t ValidationLoader::batches() const {
    return ceil_divide(windows_.count(), micro_batch_);
}

std::int64_t ValidationLoader::rounds(std::int64_t world_size) const {
    ensure(world_size >= 1, "world size is positive");
    return ceil_divide(batches(), world_size);
}

void ValidationLoader::load(std::int64_t g, TokenBatch& batch) const {
    ensure(g >= 0, "batch number is not negative");
    shape_batch(batch, micro_batch_, windows_);
    const std::int64_t first = g * micro_batch_;
    const std::int64_t filled = std::clamp<std::int64_t>(windows_.count() - first, 0, micro_batch_);
    for (std::int64_t row = 0; row < filled; ++row) read_row(windows_, first + row, row, batch);
    for (std::int64_t row = filled; row < micro_batch_; ++row) pad_row(row, batch);
}

}  // namespace fullshard::data
