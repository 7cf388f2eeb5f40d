// A token source for tests that is spelled out: tokens, documents and loss mask.
#pragma once

#include "data/token_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace fullshard::data {

struct ToySource final : public TokenSource {
    std::vector<std::int64_t> tokens;
    std::vector<std::int64_t> starts;     ///< of documents
    std::vector<std::uint8_t> loss_mask;  ///< empty: all tokens count

    std::int64_t size() const override { return std::ssize(tokens); }
    std::int64_t vocab_size() const override { return std::ranges::max(tokens) + 1; }
    void read(std::int64_t first, std::span<std::int64_t> out) const override {
        std::ranges::copy(std::span(tokens).subspan(static_cast<std::size_t>(first), out.size()),
                          out.begin());
    }
    std::string name() const override { return "toy source"; }
    std::string locate(std::int64_t position) const override {
        return fmt::format("toy token {}", position);
    }
    std::span<const std::int64_t> documents() const override { return starts; }
    bool has_loss_mask() const override { return !loss_mask.empty(); }
    void read_loss_mask(std::int64_t first, std::span<std::uint8_t> out) const override {
        std::ranges::copy(std::span(loss_mask).subspan(static_cast<std::size_t>(first), out.size()),
                          out.begin());
    }
};

/// Documents of the given lengths; token i is `first_token` + i.
inline std::shared_ptr<ToySource> toy_documents(const std::vector<std::int64_t>& lengths,
                                                std::int64_t first_token = 0) {
    auto source = std::make_shared<ToySource>();
    for (const std::int64_t length : lengths) {
        source->starts.push_back(source->size());
        source->tokens.resize(source->tokens.size() + static_cast<std::size_t>(length));
    }
    std::iota(source->tokens.begin(), source->tokens.end(), first_token);
    return source;
}

inline std::vector<std::int64_t> all_tokens(const TokenSource& source) {
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(source.size()));
    source.read(0, tokens);
    return tokens;
}

}  // namespace fullshard::data
