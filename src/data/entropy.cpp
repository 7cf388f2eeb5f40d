#include "data/entropy.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace fullshard::data {

std::vector<std::int64_t> count_tokens(std::span<const std::int64_t> tokens,
                                       std::int64_t vocab_size) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(vocab_size));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::int64_t token = tokens[i];
        if (token < 0 || token >= vocab_size)
            throw DataError(fmt::format("token {} at offset {} is outside the vocabulary of {}",
                                        token, i, vocab_size));
        ++counts[static_cast<std::size_t>(token)];
    }
    return counts;
}

std::vector<std::int64_t> count_tokens(const TokenSource& source, TokenRange range) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(source.vocab_size()));
    std::array<std::int64_t, 4096> buffer;
    for (std::int64_t done = 0; done < range.count;) {
        const auto count = std::min(static_cast<std::int64_t>(buffer.size()), range.count - done);
        const auto tokens = std::span(buffer).first(static_cast<std::size_t>(count));
        source.read(range.first + done, tokens);
        for (const std::int64_t token : tokens) ++counts.at(static_cast<std::size_t>(token));
        done += count;
    }
    return counts;
}

double entropy(std::span<const std::int64_t> counts) {
    const auto total =
        static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
    double nats = 0.0;
    for (const std::int64_t count : counts) {
        if (count == 0) continue;
        const double p = static_cast<double>(count) / total;
        nats -= p * std::log(p);
    }
    return nats;
}

double unigram_entropy(std::span<const std::int64_t> tokens, std::int64_t vocab_size) {
    return entropy(count_tokens(tokens, vocab_size));
}

double unigram_entropy(const TokenSource& source, TokenRange range) {
    return entropy(count_tokens(source, range));
}

}  // namespace fullshard::data
