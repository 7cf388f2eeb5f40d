#include "train/sampling.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace fullshard::train {

std::int64_t draw_token(std::span<const float> logits, const Sampling& sampling, double uniform) {
    const bool numbers =
        std::ranges::none_of(logits, [](float logit) { return std::isnan(logit); });
    const auto most = std::ranges::max_element(logits);
    if (!numbers || most == logits.end() || !std::isfinite(*most)) {
        throw RunError("the model's logits are not finite: its weights are damaged or diverged");
    }
    if (sampling.temperature == 0.0) return most - logits.begin();

    std::vector<std::int64_t> order(logits.size());
    std::iota(order.begin(), order.end(), std::int64_t{0});
    const auto logit = [&](std::int64_t token) { return logits[static_cast<std::size_t>(token)]; };
    std::ranges::stable_sort(order, std::ranges::greater(), logit);
    if (sampling.top_k > 0 && sampling.top_k < std::ssize(order)) {
        order.resize(static_cast<std::size_t>(sampling.top_k));
    }
    std::vector<double> sums;  // of unnormalised probabilities, the most likely first
    double sum = 0.0;
    for (const std::int64_t token : order) {
        sum += std::exp((static_cast<double>(logit(token)) - static_cast<double>(*most)) /
                        sampling.temperature);
        sums.push_back(sum);
    }
    const auto at_least = [&](double share) {
        return std::min(std::ranges::lower_bound(sums, share * sum), std::prev(sums.end()));
    };
    const double kept = *at_least(sampling.top_p);
    const auto drawn = std::ranges::upper_bound(sums, uniform * kept);
    return order[static_cast<std::size_t>(std::min(drawn, std::prev(sums.end())) - sums.begin())];
}

}  // namespace fullshard::train
