#include "data/mapped_tokens.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace fullshard::data {
namespace {

template <typename Stored>
void widen_as(std::span<const std::byte> bytes, std::span<std::int64_t> out) {
    for (std::size_t i = 0; i < out.size(); ++i) {
        Stored value;  // files align nothing
        std::memcpy(&value, bytes.data() + i * sizeof(Stored), sizeof(Stored));
        out[i] = static_cast<std::int64_t>(value);
    }
}

void widen(TokenType type, std::span<const std::byte> bytes, std::span<std::int64_t> out) {
    switch (type) {
        case TokenType::kU8:
            return widen_as<std::uint8_t>(bytes, out);
        case TokenType::kI8:
            return widen_as<std::int8_t>(bytes, out);
        case TokenType::kU16:
            return widen_as<std::uint16_t>(bytes, out);
        case TokenType::kI16:
            return widen_as<std::int16_t>(bytes, out);
        case TokenType::kU32:
            return widen_as<std::uint32_t>(bytes, out);
        case TokenType::kI32:
            return widen_as<std::int32_t>(bytes, out);
        case TokenType::kU64:
            return widen_as<std::uint64_t>(bytes, out);
        case TokenType::kI64:
            return widen_as<std::int64_t>(bytes, out);
    }
}

void require_inside(const TokenFile& part) {
    if (part.count < 0 || part.count > std::numeric_limits<std::int64_t>::max() / 8)
        throw DataError(
            fmt::format("{}: {} is no number of tokens", part.file.path().string(), part.count));
    static_cast<void>(part.file.bytes(part.first_byte, part.count * size_of(part.type)));
    if (part.loss_mask_byte) static_cast<void>(part.file.bytes(*part.loss_mask_byte, part.count));
}

}  // namespace

MappedTokens::MappedTokens(std::filesystem::path path, std::vector<TokenFile> files,
                           std::vector<std::int64_t> documents, std::int64_t vocab_size)
    : path_(std::move(path)),
      files_(std::move(files)),
      documents_(std::move(documents)),
      vocab_size_(vocab_size) {
    for (const TokenFile& part : files_) {
        require_inside(part);
        first_tokens_.push_back(size_);
        size_ += part.count;
        has_loss_mask_ = has_loss_mask_ || part.loss_mask_byte.has_value();
    }
    if (size_ < 1) throw DataError(fmt::format("{} holds no tokens", path_.string()));
    ensure(documents_.empty() || (documents_.front() == 0 && documents_.back() < size_),
           "documents start inside the source, the first at 0");
}

template <typename Value, typename Part>
void MappedTokens::for_each_part(std::int64_t first, std::span<Value> out, Part part) const {
    ensure(first >= 0 && first <= size_ && std::ssize(out) <= size_ - first,
           "read lies inside the source");
    const auto next = std::ranges::upper_bound(first_tokens_, first);
    for (auto f = static_cast<std::size_t>(next - first_tokens_.begin()) - 1; !out.empty(); ++f) {
        const TokenFile& file = files_[f];
        const std::int64_t inside = first - first_tokens_[f];
        const auto count = static_cast<std::size_t>(
            std::min(std::ssize(out), file.count - inside));  // 0 for an empty file
        part(file, inside, out.first(count));
        out = out.subspan(count);
        first += static_cast<std::int64_t>(count);
    }
}

void MappedTokens::read(std::int64_t first, std::span<std::int64_t> out) const {
    for_each_part(
        first, out, [](const TokenFile& file, std::int64_t inside, std::span<std::int64_t> tokens) {
            const std::int64_t width = size_of(file.type);
            widen(file.type,
                  file.file.bytes(file.first_byte + inside * width, std::ssize(tokens) * width),
                  tokens);
        });
    // As unsigned numbers, negative ones are too large as well.
    const auto wrong = std::ranges::find_if(out, [&](std::int64_t token) {
        return static_cast<std::uint64_t>(token) >= static_cast<std::uint64_t>(vocab_size_);
    });
    if (wrong != out.end())
        throw DataError(fmt::format("token {} at {} is outside model.vocab_size = {}", *wrong,
                                    locate(first + (wrong - out.begin())), vocab_size_));
}

void MappedTokens::read_loss_mask(std::int64_t first, std::span<std::uint8_t> out) const {
    for_each_part(
        first, out, [](const TokenFile& file, std::int64_t inside, std::span<std::uint8_t> mask) {
            if (!file.loss_mask_byte) {
                std::ranges::fill(mask, std::uint8_t{1});
                return;
            }
            const auto bytes = file.file.bytes(*file.loss_mask_byte + inside, std::ssize(mask));
            std::ranges::transform(bytes, mask.begin(), [](std::byte counts) {
                return static_cast<std::uint8_t>(counts != std::byte{0});
            });
        });
}

std::string MappedTokens::locate(std::int64_t position) const {
    ensure(position >= 0 && position < size_, "position lies inside the source");
    const auto next = std::ranges::upper_bound(first_tokens_, position);
    const auto f = static_cast<std::size_t>(next - first_tokens_.begin()) - 1;
    const TokenFile& file = files_[f];
    return fmt::format("{}, byte {}", file.file.path().string(),
                       file.first_byte + (position - first_tokens_[f]) * size_of(file.type));
}

std::vector<std::int64_t> MappedTokens::file_starts() const {
    std::vector<std::int64_t> starts;
    for (std::size_t f = 0; f < files_.size(); ++f)
        if (files_[f].count > 0) starts.push_back(first_tokens_[f]);
    return starts;
}

}  // namespace fullshard::data
