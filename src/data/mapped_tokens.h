// Tokens of binary files, widened as they are read.
#pragma once

#include "data/mapped_file.h"
#include "data/token_source.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fullshard::data {

/// How a file stores a token: little-endian integers.
enum class TokenType : std::uint8_t { kU8, kI8, kU16, kI16, kU32, kI32, kU64, kI64 };

constexpr std::int64_t size_of(TokenType type) {
    return std::int64_t{1} << (static_cast<int>(type) / 2);
}

/// One file's part of a stream.
struct TokenFile {
    MappedFile file;
    std::int64_t first_byte = 0;
    std::int64_t count = 0;  ///< tokens
    TokenType type = TokenType::kU16;
    std::optional<std::int64_t> loss_mask_byte = {};  ///< where `count` bytes, 0 or 1, begin
};

/// The tokens of one or more files, joined in order. A token outside the model's vocabulary is a
/// DataError naming file and byte, thrown where it is read: large files are not scanned.
class MappedTokens final : public TokenSource {
  public:
    /// `documents` as TokenSource::documents() has them. Throws DataError when a file does not hold
    /// what its entry says, or without any token.
    MappedTokens(std::filesystem::path path, std::vector<TokenFile> files,
                 std::vector<std::int64_t> documents, std::int64_t vocab_size);

    std::int64_t size() const override { return size_; }
    std::int64_t vocab_size() const override { return vocab_size_; }
    void read(std::int64_t first, std::span<std::int64_t> out) const override;
    std::string name() const override { return path_.string(); }
    std::string locate(std::int64_t position) const override;
    std::span<const std::int64_t> documents() const override { return documents_; }
    std::vector<std::int64_t> file_starts() const override;
    bool has_loss_mask() const override { return has_loss_mask_; }
    void read_loss_mask(std::int64_t first, std::span<std::uint8_t> out) const override;

  private:
    /// Calls part(file, first token in it, out) for each file's part of a read.
    template <typename Value, typename Part>
    void for_each_part(std::int64_t first, std::span<Value> out, Part part) const;

    std::filesystem::path path_;
    std::vector<TokenFile> files_;
    std::vector<std::int64_t> first_tokens_;  ///< of each file, in the stream
    std::vector<std::int64_t> documents_;
    std::int64_t size_ = 0;
    std::int64_t vocab_size_;
    bool has_loss_mask_ = false;
};

}  // namespace fullshard::data
