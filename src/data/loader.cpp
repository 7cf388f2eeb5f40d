#include "data/loader.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
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

void shape_batch(TokenBatch& batch, std::int64_t rows, std::int64_t sequence) {
    const auto size = static_cast<std::size_t>(rows * sequence);
    batch.tokens.resize(size);
    batch.targets.resize(size);
    batch.batch = rows;
    batch.sequence = sequence;
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
}

}  // namespace

TrainingLoader::TrainingLoader(Windows windows, Shape shape, std::uint64_t seed, bool shuffle)
    : windows_(std::move(windows)), shape_(shape), sampler_(seed, windows_.count(), shuffle) {
    require_positive("train.micro_batch", shape.micro_batch);
    require_positive("micro-batches in a step", shape.micro_batches);
}

double TrainingLoader::steps_per_epoch() const {
    return static_cast<double>(windows_.count()) /
           static_cast<double>(shape_.micro_batch * shape_.micro_batches);
}

std::int64_t TrainingLoader::first_index(std::int64_t step, std::int64_t g) const {
    return (step * shape_.micro_batches + g) * shape_.micro_batch;
}

void TrainingLoader::load(std::int64_t step, std::int64_t g, TokenBatch& batch) const {
    ensure(step >= 0 && g >= 0 && g < shape_.micro_batches, "micro-batch belongs to the step");
    shape_batch(batch, shape_.micro_batch, windows_.sequence());
    const std::int64_t first = first_index(step, g);
    for (std::int64_t row = 0; row < shape_.micro_batch; ++row)
        read_row(windows_, sampler_.sample(first + row), row, batch);
}

std::int64_t TrainingLoader::valid_targets(std::int64_t step) const {
    ensure(step >= 0, "step is not negative");
    std::int64_t valid = 0;
    for (std::int64_t index = first_index(step, 0); index < first_index(step + 1, 0); ++index)
        valid += windows_.valid_targets(sampler_.sample(index));
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
    shape_batch(batch, micro_batch_, windows_.sequence());
    const std::int64_t first = g * micro_batch_;
    const std::int64_t filled = std::clamp<std::int64_t>(windows_.count() - first, 0, micro_batch_);
    for (std::int64_t row = 0; row < filled; ++row) read_row(windows_, first + row, row, batch);
    const auto padding = static_cast<std::size_t>(filled * batch.sequence);
    std::ranges::fill(std::span(batch.tokens).subspan(padding), kPaddingToken);
    std::ranges::fill(std::span(batch.targets).subspan(padding), kIgnoredTarget);
}

}  // namespace fullshard::data
