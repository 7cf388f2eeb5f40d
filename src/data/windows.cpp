#include "data/windows.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace fullshard::data {
namespace {

void require_valid(std::int64_t sequence, const Cutting& cutting) {
    if (sequence < 1)
        throw UsageError(fmt::format("data.sequence = {}: must be at least 1", sequence));
    ensure(sequence <= std::numeric_limits<std::int32_t>::max(), "a window fits into 32 bits");
    if (cutting.targets == TargetRule::kRolled &&
        (cutting.document_mask || cutting.packing != Packing::kStream))
        throw UsageError(
            "data.targets = rolled predicts the first token of a sequence from its last, whatever "
            "their documents: set data.targets = next, or data.packing = stream and "
            "data.document_mask = off");
}

/// Calls visit(position, counts) for the loss mask of tokens [first, end).
template <typename Visit>
void visit_loss_mask(const TokenSource& source, std::int64_t first, std::int64_t end, Visit visit) {
    std::array<std::uint8_t, 1024> buffer;
    while (first < end) {
        const auto count = std::min(std::ssize(buffer), end - first);
        const auto mask = std::span(buffer).first(static_cast<std::size_t>(count));
        source.read_loss_mask(first, mask);
        for (const std::uint8_t counts : mask) visit(first++, counts != 0);
    }
}

}  // namespace

Windows::Windows(std::shared_ptr<const TokenSource> source, TokenRange range, std::int64_t sequence,
                 Cutting cutting)
    : source_(std::move(source)), range_(range), sequence_(sequence), cutting_(cutting) {
    require_valid(sequence, cutting);
    ensure(range.first >= 0 && range.count >= 0 && range.first <= source_->size() &&
               range.count <= source_->size() - range.first,
           "range of windows lies inside the source");
    if (cutting.packing != Packing::kStream) {
        pack_documents();
    } else {
        count_ = stream_windows();
        if (source_->has_loss_mask()) count_stream_with_loss_mask();
    }
    add_up();
    if (total_valid_targets_ < 1)
        throw DataError(fmt::format("{}: {} tokens from token {} on hold nothing to predict",
                                    source_->name(), range.count, range.first));
}

Windows Windows::head(std::int64_t count) const {
    ensure(count >= 1, "at least one window is left");
    if (cutting_.packing == Packing::kStream) {
        if (range_.count / sequence_ < count) return *this;
        return {source_, {range_.first, count * sequence_}, sequence_, cutting_};
    }
    Windows part = *this;
    part.count_ = std::min(count, count_);
    part.add_up();
    return part;
}

std::int64_t Windows::stream_windows() const {
    // Under kNext the stream's last token is no input.
    const std::int64_t inputs =
        cutting_.targets == TargetRule::kNext ? range_.count - 1 : range_.count;
    return inputs < 1 ? 0 : (inputs - 1) / sequence_ + 1;
}

void Windows::count_stream_with_loss_mask() {
    std::vector<Row> rows;
    rows.reserve(static_cast<std::size_t>(count_));
    for (std::int64_t i = 0; i < count_; ++i) {
        const Extent window = extent(i);
        rows.push_back({window.first, static_cast<std::int32_t>(window.inputs),
                        static_cast<std::int32_t>(count_valid_targets(window))});
    }
    table_ = std::make_shared<const std::vector<Row>>(std::move(rows));
}

void Windows::pack_documents() {
    std::vector<Row> rows;
    Row open;  // takes further documents
    const auto close = [&] {
        if (open.inputs > 0) {
            open.valid_targets =
                static_cast<std::int32_t>(count_valid_targets(extent_of(open.first, open.inputs)));
            if (open.valid_targets > 0) rows.push_back(open);
        }
        open = {};
    };
    const auto add = [&](std::int64_t first, std::int64_t end) {
        if (cutting_.packing == Packing::kNone || open.inputs + (end - first) > sequence_) close();
        while (end - first > sequence_) {
            open = {first, static_cast<std::int32_t>(sequence_), 0};
            close();
            first += sequence_;
            if (end - first == 1) return;
        }
        if (open.inputs == 0) open.first = first;
        open.inputs += static_cast<std::int32_t>(end - first);
    };
    if (range_.count > 0) {
        std::int64_t first = range_.first;
        for (const std::int64_t next : starts_between(range_.first, range_end())) {
            add(first, next);
            first = next;
        }
        add(first, range_end());
        close();
    }
    count_ = std::ssize(rows);
    table_ = std::make_shared<const std::vector<Row>>(std::move(rows));
}

void Windows::add_up() {
    if (table_) {
        total_valid_targets_ = 0;
        for (const Row& row : std::span(*table_).first(static_cast<std::size_t>(count_)))
            total_valid_targets_ += row.valid_targets;
    } else if (cutting_.targets == TargetRule::kRolled) {
        total_valid_targets_ = range_.count;
    } else {
        total_valid_targets_ = range_.count - 1;
        if (cutting_.document_mask)
            total_valid_targets_ -= std::ssize(starts_between(range_.first, range_end()));
    }
}

Windows::Extent Windows::extent(std::int64_t index) const {
    ensure(index >= 0 && index < count_, "window index is in range");
    if (table_) {
        const Row& row = (*table_)[static_cast<std::size_t>(index)];
        return extent_of(row.first, row.inputs);
    }
    const std::int64_t first = range_.first + index * sequence_;
    return extent_of(first, std::min(sequence_, range_end() - first));
}

Windows::Extent Windows::extent_of(std::int64_t first, std::int64_t inputs) const {
    const std::int64_t end = first + inputs;
    const bool ends_inside = cutting_.packing != Packing::kStream &&
                             std::ranges::binary_search(source_->documents(), end);
    const bool next_is_target =
        cutting_.targets == TargetRule::kNext && end < range_end() && !ends_inside;
    return {first, inputs, next_is_target ? end + 1 : end};
}

std::span<const std::int64_t> Windows::starts_between(std::int64_t after,
                                                      std::int64_t before) const {
    const auto starts = source_->documents();
    const auto first = std::ranges::upper_bound(starts, after);
    return {first, std::max(first, std::ranges::lower_bound(starts, before))};
}

std::int64_t Windows::count_valid_targets(const Extent& extent) const {
    const bool rolled = cutting_.targets == TargetRule::kRolled;
    const std::int64_t first_target = rolled ? extent.first : extent.first + 1;
    const auto ignored_starts = cutting_.document_mask
                                    ? starts_between(extent.first, extent.target_end)
                                    : std::span<const std::int64_t>{};
    if (!source_->has_loss_mask())
        return extent.target_end - first_target - std::ssize(ignored_starts);
    std::int64_t valid = 0;
    auto start = ignored_starts.begin();
    visit_loss_mask(*source_, first_target, extent.target_end,
                    [&](std::int64_t position, bool counts) {
                        const bool ignored = start != ignored_starts.end() && *start == position;
                        if (ignored) ++start;
                        if (counts && !ignored) ++valid;
                    });
    return valid;
}

std::int64_t Windows::valid_targets(std::int64_t index) const {
    ensure(index >= 0 && index < count_, "window index is in range");
    if (table_) return (*table_)[static_cast<std::size_t>(index)].valid_targets;
    return count_valid_targets(extent(index));
}

std::int64_t Windows::read(std::int64_t index, std::span<std::int64_t> tokens,
                           std::span<std::int64_t> targets) const {
    ensure(std::ssize(tokens) == sequence_ && targets.size() == tokens.size(),
           "buffers are one window long");
    const Extent window = extent(index);
    const auto present = static_cast<std::size_t>(window.inputs);
    source_->read(window.first, tokens.first(present));
    std::ranges::fill(tokens.subspan(present), kPaddingToken);

    std::ranges::copy(tokens.first(present).subspan(1), targets.begin());
    std::ranges::fill(targets.subspan(present - 1), kIgnoredTarget);
    const std::int64_t end = window.first + window.inputs;
    if (cutting_.targets == TargetRule::kRolled)
        targets[present - 1] = tokens.front();
    else if (window.target_end > end)
        source_->read(end, targets.subspan(present - 1, 1));
    ignore_masked_targets(window, targets);
    return valid_targets(index);
}

void Windows::ignore_masked_targets(const Extent& extent, std::span<std::int64_t> targets) const {
    // The target at position i is token first + i + 1.
    if (cutting_.document_mask) {
        for (const std::int64_t start : starts_between(extent.first, extent.target_end))
            targets[static_cast<std::size_t>(start - extent.first - 1)] = kIgnoredTarget;
    }
    if (!source_->has_loss_mask()) return;
    visit_loss_mask(
        *source_, extent.first + 1, extent.target_end, [&](std::int64_t position, bool counts) {
            if (!counts)
                targets[static_cast<std::size_t>(position - extent.first - 1)] = kIgnoredTarget;
        });
    if (cutting_.targets == TargetRule::kRolled) {
        visit_loss_mask(*source_, extent.first, extent.first + 1, [&](std::int64_t, bool counts) {
            if (!counts) targets[static_cast<std::size_t>(extent.inputs - 1)] = kIgnoredTarget;
        });
    }
}

void Windows::read_documents(std::int64_t index, std::span<std::int64_t> positions,
                             std::span<std::int64_t> documents) const {
    ensure(std::ssize(positions) == sequence_ && documents.size() == positions.size(),
           "buffers are one window long");
    const Extent window = extent(index);
    const std::int64_t end = window.first + window.inputs;
    const auto starts = starts_between(window.first, end);
    auto start = starts.begin();
    std::int64_t position = 0, document = 0;
    for (std::int64_t i = 0; i < sequence_; ++i) {
        const bool padding_starts = i == window.inputs;
        const bool document_starts = start != starts.end() && *start == window.first + i;
        if (document_starts) ++start;
        if (padding_starts || document_starts) {
            position = 0;
            ++document;
        }
        positions[static_cast<std::size_t>(i)] = position++;
        documents[static_cast<std::size_t>(i)] = document;
    }
}

}  // namespace fullshard::data
