// Sequences cut out of a token stream, with their targets.
#pragma once

#include "data/token_source.h"

#include <cstdint>
#include <memory>
#include <span>

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

/// A range of a token stream as windows of `sequence` tokens. Window i starts at token i * sequence
/// of the range; a remainder makes a last, short window that is padded. No token is left out: under
/// kNext every token but the first is a target exactly once, and every token but the last an input
/// exactly once (a last token that would be alone in its window is a target only); under kRolled
/// every token is both exactly once. No target comes from outside the range.
class Windows {
  public:
    /// Throws DataError naming the source when the range holds no target, UsageError when
    /// `sequence` is not positive.
    Windows(std::shared_ptr<const TokenSource> source, TokenRange range, std::int64_t sequence,
            TargetRule rule);

    std::int64_t count() const { return count_; }
    std::int64_t sequence() const { return sequence_; }
    const TokenSource& source() const { return *source_; }
    TokenRange range() const { return range_; }

    /// Targets of window `index` that are not ignored; known without reading it.
    std::int64_t valid_targets(std::int64_t index) const;
    /// Fills `tokens` and `targets`, each `sequence()` long, without allocating. Returns
    /// valid_targets(index).
    std::int64_t read(std::int64_t index, std::span<std::int64_t> tokens,
                      std::span<std::int64_t> targets) const;

  private:
    /// Tokens of the range from the start of window `index` on.
    std::int64_t remaining(std::int64_t index) const { return range_.count - index * sequence_; }

    std::shared_ptr<const TokenSource> source_;
    TokenRange range_;
    std::int64_t sequence_;
    TargetRule rule_;
    std::int64_t count_;
};

/// Training and validation data of one source.
struct Split {
    TokenRange training;
    TokenRange validation;  ///< empty when no validation was asked for
};

/// The last `validation_fraction` of the stream is held out, rounded to whole windows of `sequence`
/// tokens but at least one; a remainder stays at the end of the stream. Both parts get one whole
/// window at least, else DataError names the source and the sizes. Throws UsageError for a fraction
/// outside [0, 1).
Split split(const TokenSource& source, std::int64_t sequence, double validation_fraction);

}  // namespace fullshard::data
