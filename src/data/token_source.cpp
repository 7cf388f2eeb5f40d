#include "data/token_source.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace fullshard::data {

void TokenSource::read_loss_mask(std::int64_t first, std::span<std::uint8_t> out) const {
    ensure(first >= 0 && first <= size() && std::ssize(out) <= size() - first,
           "read lies inside the source");
    std::ranges::fill(out, std::uint8_t{1});
}

void require_vocabulary(const TokenSource& source, std::int64_t vocab_size) {
    if (source.vocab_size() <= vocab_size) return;
    std::array<std::int64_t, 4096> buffer;
    for (std::int64_t first = 0; first < source.size();) {
        const auto count =
            std::min(static_cast<std::int64_t>(buffer.size()), source.size() - first);
        const auto tokens = std::span(buffer).first(static_cast<std::size_t>(count));
        source.read(first, tokens);
        const auto wrong =
            std::ranges::find_if(tokens, [&](std::int64_t token) { return token >= vocab_size; });
        if (wrong != tokens.end())
            throw DataError(
                fmt::format("token {} at {} is outside model.vocab_size = {}: this source "
                            "needs up to {}",
                            *wrong, source.locate(first + (wrong - tokens.begin())), vocab_size,
                            source.vocab_size()));
        first += count;
    }
}

}  // namespace fullshard::data
