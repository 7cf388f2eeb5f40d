#include "base/error.h"
#include "data/file_kind.h"
#include "data/mapped_tokens.h"
#include "data/token_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fullshard::data {
namespace {

namespace fs = std::filesystem;

// Where fields of an index begin; nothing in it is aligned.
constexpr std::int64_t kVersionByte = 9;
constexpr std::int64_t kTypeByte = 17;
constexpr std::int64_t kSequencesByte = 18;
constexpr std::int64_t kDocumentsByte = 26;
constexpr std::int64_t kHeaderBytes = 34;

/// `path` without the ending of either file.
std::string prefix_of(const fs::path& path) {
    const bool named = path.extension() == ".bin" || path.extension() == ".idx";
    return named ? (path.parent_path() / path.stem()).string() : path.string();
}

/// The .idx of a data set: sizes of the sequences, their places in the .bin, and which of them
/// begin documents.
class Index {
  public:
    /// Of a .bin file of `bin_bytes`.
    Index(const fs::path& path, std::int64_t bin_bytes) : file_(path) {
        require_header();
        require_sizes(bin_bytes / size_of(type_));
    }

    TokenType type() const { return type_; }
    std::int64_t tokens() const { return tokens_; }

    /// Document starts in tokens; documents without tokens have no part in it.
    std::vector<std::int64_t> documents() const {
        std::vector<std::int64_t> starts;
        std::int64_t sequence = 0, token = 0;
        for (std::int64_t d = 0; d < documents_; ++d) {
            const auto next = at<std::int64_t>(documents_byte() + 8 * d);
            if (next < sequence || next > sequences_ || (d == 0 && next != 0))
                fail(documents_byte() + 8 * d,
                     fmt::format("document {} begins at sequence {} of {}, the one before it at {}",
                                 d, next, sequences_, sequence));
            for (; sequence < next; ++sequence) token += size(sequence);
            if (token < tokens_ && (starts.empty() || starts.back() < token))
                starts.push_back(token);
        }
        if (documents_ > 0 && sequence != sequences_)
            fail(documents_byte() + 8 * (documents_ - 1),
                 fmt::format("the last document ends at sequence {} of {}", sequence, sequences_));
        return starts;
    }

  private:
    template <typename T>
    T at(std::int64_t byte) const {
        return number_at<T>(file_.bytes(), byte);
    }
    std::int64_t size(std::int64_t sequence) const {
        return at<std::int32_t>(kHeaderBytes + 4 * sequence);
    }
    std::int64_t pointers_byte() const { return kHeaderBytes + 4 * sequences_; }
    std::int64_t documents_byte() const { return kHeaderBytes + 12 * sequences_; }

    [[noreturn]] void fail(std::int64_t byte, std::string_view what) const {
        throw DataError(fmt::format("{}: byte {}: {}", file_.path().string(), byte, what));
    }

    void require_header() {
        const std::string_view text(reinterpret_cast<const char*>(file_.bytes().data()),
                                    file_.bytes().size());
        if (!text.starts_with(kMegatronIndexMagic))
            fail(0, fmt::format("{} in place of an index of Megatron", file_kind(file_.bytes())));
        if (file_.size() < kHeaderBytes)
            fail(file_.size(), fmt::format("the header of {} bytes is cut off", kHeaderBytes));
        const auto version = at<std::uint64_t>(kVersionByte);
        if (version != 1)
            fail(kVersionByte, fmt::format("version {}; only version 1 is known", version));
        type_ = type_of(at<std::uint8_t>(kTypeByte));
        const std::int64_t body = file_.size() - kHeaderBytes;
        // Compared by division: products of hostile counts overflow.
        sequences_ = at<std::int64_t>(kSequencesByte);
        if (sequences_ < 0 || sequences_ > body / 12)
            fail(kSequencesByte, fmt::format("{} sequences do not fit into a file of {} bytes",
                                             at<std::uint64_t>(kSequencesByte), file_.size()));
        documents_ = at<std::int64_t>(kDocumentsByte);
        const std::int64_t left = body - 12 * sequences_;
        if (documents_ < 0 || documents_ > left / 8 || documents_ * 8 != left)
            fail(kDocumentsByte,
                 fmt::format("{} document entries and {} sequences make another size than the "
                             "file's {} bytes",
                             at<std::uint64_t>(kDocumentsByte), sequences_, file_.size()));
    }

    TokenType type_of(std::uint8_t code) const {
        switch (code) {
            case 1:
                return TokenType::kU8;
            case 2:
                return TokenType::kI8;
            case 3:
                return TokenType::kI16;
            case 4:
                return TokenType::kI32;
            case 5:
                return TokenType::kI64;
            case 6:
            case 7:
                fail(kTypeByte, fmt::format("type code {} stands for floating-point numbers, which "
                                            "are no tokens",
                                            code));
            case 8:
                return TokenType::kU16;
            default:
                fail(kTypeByte, fmt::format("type code {}; 1 to 8 are known", code));
        }
    }

    /// Sequences lie one after the other, so that the .bin is one stream.
    void require_sizes(std::int64_t tokens_in_bin) {
        for (std::int64_t s = 0; s < sequences_; ++s) {
            if (size(s) < 0 || size(s) > tokens_in_bin - tokens_)
                fail(kHeaderBytes + 4 * s,
                     fmt::format("sequence {} has {} tokens, but {} are left in the .bin file: it "
                                 "is cut off, or of another data set",
                                 s, size(s), tokens_in_bin - tokens_));
            const auto pointer = at<std::int64_t>(pointers_byte() + 8 * s);
            const std::int64_t expected = tokens_ * size_of(type_);
            if (pointer != expected)
                fail(pointers_byte() + 8 * s,
                     fmt::format("sequence {} begins at byte {} of the .bin file, the one before "
                                 "ends at {}: only sequences one after the other are read",
                                 s, pointer, expected));
            tokens_ += size(s);
        }
    }

    MappedFile file_;
    TokenType type_ = TokenType::kU16;
    std::int64_t sequences_ = 0;
    std::int64_t documents_ = 0;  ///< entries: one more than documents
    std::int64_t tokens_ = 0;
};

}  // namespace

std::shared_ptr<const TokenSource> open_megatron(const fs::path& path, std::int64_t vocab_size) {
    const std::string prefix = prefix_of(path);
    MappedFile bin(prefix + ".bin");
    const Index index(prefix + ".idx", bin.size());
    const std::int64_t expected = index.tokens() * size_of(index.type());
    if (bin.size() != expected)
        throw DataError(
            fmt::format("{}.bin has {} bytes, {}.idx describes {}: they are of two data "
                        "sets",
                        prefix, bin.size(), prefix, expected));
    std::vector<TokenFile> files;
    files.push_back({.file = std::move(bin), .count = index.tokens(), .type = index.type()});
    return std::make_shared<MappedTokens>(prefix, std::move(files), index.documents(), vocab_size);
}

}  // namespace fullshard::data
