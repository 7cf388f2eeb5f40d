// From tokens back to text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::data {

/// The bytes that each token stands for.
class TokenTable {
  public:
    /// Of a vocabulary in which the 256 byte values are the tokens.
    static TokenTable of_bytes();
    /// A tokenizer file of llm.c: 1024 bytes of header (magic 20240328, version 1 or 2, number of
    /// tokens, from version 2 on the token that ends a text or 0xFFFFFFFF), then each token's
    /// length in one byte and its bytes. Throws DataError naming path, place and values.
    static TokenTable read(const std::filesystem::path& file);
    /// `tokenizer.bin` in a folder, as data.tokenizer names it; of_bytes() where it names none.
    static TokenTable open(const std::filesystem::path& folder);

    std::int64_t vocab_size() const { return static_cast<std::int64_t>(starts_.size()) - 1; }
    /// Empty for a token outside [0, vocab_size()): models with a padded table may draw one.
    std::string_view bytes_of(std::int64_t token) const;
    /// The token that ends a text, if there is one.
    std::optional<std::int64_t> end_of_text() const { return end_of_text_; }

  private:
    TokenTable() = default;

    std::string bytes_;                 ///< of all tokens, joined
    std::vector<std::int64_t> starts_;  ///< of each token's bytes, and the end of the last
    std::optional<std::int64_t> end_of_text_;
};

}  // namespace fullshard::data
