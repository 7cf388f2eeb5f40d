#include "base/error.h"
#include "data/windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace fullshard::data {
namespace {

/// A split at token `boundary`.
Split split_at(const TokenSource& source, std::int64_t boundary) {
    return {.training = {0, boundary}, .validation = {boundary, source.size() - boundary}};
}

/// The start of a document, but for the first one, that lies nearest to `position`.
std::int64_t nearest_start(std::span<const std::int64_t> documents, std::int64_t position) {
    const auto inner = documents.subspan(1);
    const auto next = std::ranges::lower_bound(inner, position);
    if (next == inner.begin()) return *next;
    const std::int64_t before = *(next - 1);
    return next != inner.end() && *next - position < position - before ? *next : before;
}

Split split_windows(const TokenSource& source, std::int64_t sequence, double validation_fraction) {
    const std::int64_t windows = source.size() / sequence;
    const bool validate = validation_fraction > 0.0;
    if (windows < (validate ? 2 : 1))
        throw DataError(
            fmt::format("{} holds {} tokens, fewer than one window of data.sequence = {} for {}: "
                        "use more data or "
                        "a shorter sequence",
                        source.name(), source.size(), sequence,
                        validate ? "training and one for validation" : "training"));
    if (!validate) return split_at(source, source.size());
    const auto held_out = std::clamp<std::int64_t>(
        std::llround(validation_fraction * static_cast<double>(windows)), 1, windows - 1);
    return split_at(source, (windows - held_out) * sequence);
}

}  // namespace

Split split(const TokenSource& source, std::int64_t sequence, double validation_fraction) {
    if (sequence < 1)
        throw UsageError(fmt::format("data.sequence = {}: must be at least 1", sequence));
    if (!(validation_fraction >= 0.0 && validation_fraction < 1.0))
        throw UsageError(
            fmt::format("data.validation_fraction = {}: must be at least 0 and less than 1",
                        validation_fraction));
    const auto documents = source.documents();
    if (documents.size() < 2) return split_windows(source, sequence, validation_fraction);
    if (validation_fraction == 0.0) return split_at(source, source.size());
    const auto held_out = std::llround(validation_fraction * static_cast<double>(source.size()));
    return split_at(source, nearest_start(documents, source.size() - held_out));
}

}  // namespace fullshard::data
