#include "data/mixture.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace fullshard::data {
namespace {

/// Shares of a block by the method of the largest remainder; of equal ones the first gets more.
std::vector<std::int64_t> apportion(std::span<const double> weights) {
    double total = 0.0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        if (!(std::isfinite(weights[i]) && weights[i] > 0.0))
            throw UsageError(fmt::format(
                "weight = {} of data source {}: must be positive and finite", weights[i], i + 1));
        total += weights[i];
    }
    ensure(std::isfinite(total), "the sum of weights is finite");
    std::vector<std::int64_t> shares;
    std::vector<double> remainders;
    for (const double weight : weights) {
        const double exact = weight / total * static_cast<double>(Mixture::kBlock);
        shares.push_back(static_cast<std::int64_t>(exact));
        remainders.push_back(exact - std::floor(exact));
    }
    std::vector<std::size_t> order(weights.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(-remainders[i], i); });
    std::int64_t left = Mixture::kBlock - std::reduce(shares.begin(), shares.end());
    for (std::size_t i = 0; left > 0; i = (i + 1) % order.size(), --left) ++shares[order[i]];
    for (std::size_t i = 0; i < shares.size(); ++i) {
        if (shares[i] < 1)
            throw UsageError(fmt::format(
                "weight = {} of data source {} is less than one in {} of all weights together: "
                "raise it or leave the source out",
                weights[i], i + 1, Mixture::kBlock));
    }
    return shares;
}

/// At every place the source that lags most behind its share.
std::vector<Mixture::Draw> interleave(std::span<const std::int64_t> shares) {
    std::vector<std::int64_t> taken(shares.size());
    std::vector<Mixture::Draw> pattern;
    for (std::int64_t place = 1; place <= Mixture::kBlock; ++place) {
        const auto lag = [&](std::size_t s) {
            return shares[s] * place - taken[s] * Mixture::kBlock;
        };
        std::size_t most = 0;
        for (std::size_t s = 1; s < shares.size(); ++s)
            if (taken[most] == shares[most] || (taken[s] < shares[s] && lag(s) > lag(most)))
                most = s;
        pattern.push_back({static_cast<std::int64_t>(most), taken[most]++});
    }
    return pattern;
}

}  // namespace

Mixture::Mixture(std::span<const double> weights, std::uint64_t seed, bool shuffle)
    : in_block_(apportion(weights)),
      pattern_(interleave(in_block_)),
      places_(seed, kBlock, shuffle) {}

Mixture::Draw Mixture::draw(std::int64_t index) const {
    ensure(index >= 0, "sample index is not negative");
    if (in_block_.size() == 1) return {0, index};
    Draw draw = pattern_[static_cast<std::size_t>(places_.sample(index))];
    draw.index += index / kBlock * in_block_[static_cast<std::size_t>(draw.source)];
    return draw;
}

}  // namespace fullshard::data
