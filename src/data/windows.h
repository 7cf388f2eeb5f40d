// Sequences cut out of a token stream, with their targets.
#pragma once

#include "data/token_source.h"

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace fullshard::data {

/// What the model predicts at each position of a window.
enum class TargetRule : std::uint8_t {
    kNext,    ///< the token that follows in the stream, also across the window's end
    kRolled,  ///< the window rolled left by one: the last position predicts the window's first
              ///< token
};

/// Target of a position that does not count. The loss must skip it.
inline constexpr std::int64_t kIgnoredTarget = -1;
/// Token of a position behind the end of the data; its target is ignored.
inline constexpr std::int64_t kPaddingToken = 0;

/// How the documents of a stream become windows.
enum class Packing : std::uint8_t {
    kStream,     ///< one after the other, cut wherever a window is full
    kDocuments,  ///< as many whole ones as fit; only those longer than a window are cut
    kNone,       ///< each begins a window of its own
};

struct Cutting {
    TargetRule targets = TargetRule::kNext;
    Packing packing = Packing::kStream;
    bool document_mask = false;  ///< no token of another document is predicted
};

/// A range of a token stream as windows of `sequence` tokens. No target comes from outside it.
///
/// kStream: window i starts at token i * sequence of the range; a remainder makes a last, short
/// window that is padded. No token is left out: under kNext every token but the first is a target
/// exactly once, and every token but the last an input exactly once (a last token that would be
/// alone in its window is a target only); under kRolled every token is both exactly once.
///
/// kDocuments and kNone: windows end where a document ends, and their last target is ignored there.
/// A document longer than a window starts one and is cut into full ones; its remainder is packed
/// like a document, unless it is a single token, which is a target only. Windows without a valid
/// target are left out. Where each one begins is a table in memory, 16 bytes a window.
///
/// Targets that the document mask or the source's loss mask takes out are ignored. With a loss mask
/// the numbers of valid targets are counted once, here.
class Windows {
  public:
    /// Throws DataError naming the source when the range holds no target, UsageError when
    /// `sequence` is not positive or rolled targets meet documents.
    Windows(std::shared_ptr<const TokenSource> source, TokenRange range, std::int64_t sequence,
            Cutting cutting);
    Windows(std::shared_ptr<const TokenSource> source, TokenRange range, std::int64_t sequence,
            TargetRule rule)
        : Windows(std::move(source), range, sequence, Cutting{.targets = rule}) {}

    std::int64_t count() const { return count_; }
    std::int64_t sequence() const { return sequence_; }
    const TokenSource& source() const { return *source_; }
    TokenRange range() const { return range_; }
    const Cutting& cutting() const { return cutting_; }

    /// The first `count` windows, all where there are fewer. No target is from behind them.
    Windows head(std::int64_t count) const;

    /// Targets of window `index` that are not ignored; known without reading it.
    std::int64_t valid_targets(std::int64_t index) const;
    /// Of all windows together.
    std::int64_t total_valid_targets() const { return total_valid_targets_; }
    /// Whether all windows but the last have `sequence` valid targets: sums need no loop then.
    bool uniform() const { return !table_ && !cutting_.document_mask; }

    /// Fills `tokens` and `targets`, each `sequence()` long, without allocating. Returns
    /// valid_targets(index).
    std::int64_t read(std::int64_t index, std::span<std::int64_t> tokens,
                      std::span<std::int64_t> targets) const;
    /// Fills what TokenBatch says of a row's positions and documents, without allocating.
    void read_documents(std::int64_t index, std::span<std::int64_t> positions,
                        std::span<std::int64_t> documents) const;

  private:
    struct Row {
        std::int64_t first = 0;   ///< token of the source
        std::int32_t inputs = 0;  ///< tokens; padding follows
        std::int32_t valid_targets = 0;
    };
    /// A window's inputs are tokens [first, first + inputs); targets lie before target_end.
    struct Extent {
        std::int64_t first = 0;
        std::int64_t inputs = 0;
        std::int64_t target_end = 0;
    };

    std::int64_t range_end() const { return range_.first + range_.count; }
    std::int64_t stream_windows() const;
    Extent extent(std::int64_t index) const;
    Extent extent_of(std::int64_t first, std::int64_t inputs) const;
    /// Document starts in (after, before).
    std::span<const std::int64_t> starts_between(std::int64_t after, std::int64_t before) const;
    std::int64_t count_valid_targets(const Extent& extent) const;
    void ignore_masked_targets(const Extent& extent, std::span<std::int64_t> targets) const;
    void count_stream_with_loss_mask();
    void pack_documents();
    void add_up();

    std::shared_ptr<const TokenSource> source_;
    TokenRange range_;
    std::int64_t sequence_;
    Cutting cutting_;
    std::int64_t count_ = 0;
    std::int64_t total_valid_targets_ = 0;
    std::shared_ptr<const std::vector<Row>> table_;  ///< null where arithmetic is enough
};

/// Training and validation data of one source.
struct Split {
    TokenRange training;
    TokenRange validation;  ///< empty when no validation was asked for
};

/// The last `validation_fraction` of the stream is held out, rounded to whole windows of `sequence`
/// tokens but at least one; a remainder stays at the end of the stream. Both parts get one whole
/// window at least, else DataError names the source and the sizes. Of a source with two documents
/// or more, whole ones are held out, as many as come nearest to the fraction and at least one.
/// Throws UsageError for a fraction outside [0, 1).
Split split(const TokenSource& source, std::int64_t sequence, double validation_fraction);

}  // namespace fullshard::data
