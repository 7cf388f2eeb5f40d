#include "data/windows.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace fullshard::data {
namespace {

void require_positive(std::int64_t sequence) {
    if (sequence < 1)
        throw UsageError(fmt::format("data.sequence = {}: must be at least 1", sequence));
}

/// Under kNext the stream's last token is no input.
std::int64_t inputs_in(TokenRange range, TargetRule rule) {
    return rule == TargetRule::kNext ? range.count - 1 : range.count;
}

}  // namespace

Windows::Windows(std::shared_ptr<const TokenSource> source, TokenRange range, std::int64_t sequence,
                 TargetRule rule)
    : source_(std::move(source)), range_(range), sequence_(sequence), rule_(rule), count_(0) {
    require_positive(sequence);
    ensure(range.first >= 0 && range.count >= 0 && range.first <= source_->size() &&
               range.count <= source_->size() - range.first,
           "range of windows lies inside the source");
    const std::int64_t inputs = inputs_in(range, rule);
    if (inputs < 1)
        throw DataError(fmt::format("{}: {} tokens from token {} on hold nothing to predict",
                                    source_->name(), range.count, range.first));
    count_ = (inputs - 1) / sequence + 1;
}

std::int64_t Windows::valid_targets(std::int64_t index) const {
    ensure(index >= 0 && index < count_, "window index is in range");
    const std::int64_t available =
        rule_ == TargetRule::kNext ? remaining(index) - 1 : remaining(index);
    return std::min(sequence_, available);
}

std::int64_t Windows::read(std::int64_t index, std::span<std::int64_t> tokens,
                           std::span<std::int64_t> targets) const {
    ensure(static_cast<std::int64_t>(tokens.size()) == sequence_ && targets.size() == tokens.size(),
           "buffers are one window long");
    const std::int64_t valid = valid_targets(index);
    const auto present = static_cast<std::size_t>(std::min(sequence_, remaining(index)));
    const std::int64_t first = range_.first + index * sequence_;

    source_->read(first, tokens.first(present));
    std::ranges::fill(tokens.subspan(present), kPaddingToken);

    std::ranges::copy(tokens.first(present).subspan(1), targets.begin());
    std::ranges::fill(targets.subspan(present - 1), kIgnoredTarget);
    if (rule_ == TargetRule::kRolled)
        targets[present - 1] = tokens.front();
    else if (valid == sequence_)
        source_->read(first + sequence_, targets.last(1));
    return valid;
}

Split split(const TokenSource& source, std::int64_t sequence, double validation_fraction) {
    require_positive(sequence);
    if (!(validation_fraction >= 0.0 && validation_fraction < 1.0))
        throw UsageError(
            fmt::format("data.validation_fraction = {}: must be at least 0 and less than 1",
                        validation_fraction));
    const std::int64_t windows = source.size() / sequence;
    const bool validate = validation_fraction > 0.0;
    if (windows < (validate ? 2 : 1))
        throw DataError(
            fmt::format("{} holds {} tokens, fewer than one window of data.sequence = {} for {}: "
                        "use more data or "
                        "a shorter sequence",
                        source.name(), source.size(), sequence,
                        validate ? "training and one for validation" : "training"));
    if (!validate) return {.training = {0, source.size()}, .validation = {source.size(), 0}};

    const auto held_out = std::clamp<std::int64_t>(
        std::llround(validation_fraction * static_cast<double>(windows)), 1, windows - 1);
    const std::int64_t boundary = (windows - held_out) * sequence;
    return {.training = {0, boundary}, .validation = {boundary, source.size() - boundary}};
}

}  // namespace fullshard::data
