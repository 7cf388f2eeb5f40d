// Where tokens come from: one long stream, read by position.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace fullshard::data {

/// Tokens [first, first + count) of a source.
struct TokenRange {
    std::int64_t first = 0;
    std::int64_t count = 0;
    bool operator==(const TokenRange&) const = default;
};

/// A stream of `size()` tokens, each in [0, vocab_size()). Immutable after construction, so that
/// several threads may read at once.
class TokenSource {
  public:
    virtual ~TokenSource() = default;

    virtual std::int64_t size() const = 0;
    virtual std::int64_t vocab_size() const = 0;

    /// Copies tokens [first, first + out.size()) without allocating. The range must lie inside.
    virtual void read(std::int64_t first, std::span<std::int64_t> out) const = 0;

    /// What the source is, for messages: a path, or the parameters of generated tokens.
    virtual std::string name() const = 0;
    /// Where token `position` stands in the user's terms: file and byte offset, or sequence.
    virtual std::string locate(std::int64_t position) const = 0;
};

/// Throws DataError naming the place of the first token that a model with `vocab_size` cannot
/// embed. Scans only when the source's own vocabulary is larger.
void require_vocabulary(const TokenSource& source, std::int64_t vocab_size);

}  // namespace fullshard::data
