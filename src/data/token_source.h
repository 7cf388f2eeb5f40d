// Where tokens come from: one long stream, read by position.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

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

    /// Where documents begin: strictly ascending, the first at 0. Empty: the source does not tell
    /// documents apart.
    virtual std::span<const std::int64_t> documents() const { return {}; }
    /// Where its files begin, in the form of documents(); files without tokens have no part in it.
    virtual std::vector<std::int64_t> file_starts() const { return {0}; }

    /// Whether some tokens are not to be predicted.
    virtual bool has_loss_mask() const { return false; }
    /// 1 for each token of [first, first + out.size()) that counts as a target, 0 for the others;
    /// without allocating. The range must lie inside.
    virtual void read_loss_mask(std::int64_t first, std::span<std::uint8_t> out) const;
};

/// Throws DataError naming the place of the first token that a model with `vocab_size` cannot
/// embed. Scans only when the source's own vocabulary is larger.
void require_vocabulary(const TokenSource& source, std::int64_t vocab_size);

/// The same tokens as documents that begin where files do and behind every token `document_end`
/// (-1: there is none). Scans the source. A source that tells documents apart itself is returned
/// as it is.
std::shared_ptr<const TokenSource> with_documents(std::shared_ptr<const TokenSource> source,
                                                  std::int64_t document_end);

/// Different, but for bad luck, for sources with different tokens, documents or loss masks. Reads
/// all of a source with up to 2^26 tokens; of a larger one the size and blocks of 4096 tokens at
/// 1024 places, its ends included.
std::uint64_t fingerprint(const TokenSource& source);

}  // namespace fullshard::data
