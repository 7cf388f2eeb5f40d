#include "micro/turns.h"

#include "base/clock.h"
#include "base/error.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

namespace fullshard::micro {

namespace {

/// Of one call: from when the first rank begins until the last one ends. Where ranks outnumber
/// cores they may run one after the other, each of them fast.
double turn(const comm::Group& world, const Contender& contender) {
    if (contender.prepare) contender.prepare();
    world.barrier();
    const double begin = now_seconds();
    for (int call = 0; call < contender.calls; ++call) contender.run();
    // Processes of one host have one monotonic clock.
    std::array<double, 2> extremes{-begin, now_seconds()};
    world.all_reduce(extremes, comm::Reduction::kMax);
    if (contender.finish) contender.finish();
    return (extremes[0] + extremes[1]) / contender.calls;
}

void check(const comm::Group& world, std::span<const Contender> contenders) {
    for (const Contender& contender : contenders) {
        if (contender.check) contender.check();
        world.barrier();
    }
}

}  // namespace

Spread spread_of(std::vector<double> values) {
    ensure(!values.empty(), "a spread is of one value at least");
    std::ranges::sort(values);
    const auto at = [&](double fraction) {
        return values[static_cast<std::size_t>(fraction * static_cast<double>(values.size() - 1))];
    };
    return {at(0.5), at(0.25), at(0.75)};
}

Turns::Turns(const comm::Group& world, std::span<const Contender> contenders, int rounds)
    : contenders_(contenders.begin(), contenders.end()), seconds_(contenders.size()) {
    if (world.split_by_shared_memory().size() != world.size())
        throw UsageError("micro-benchmarks run on one host: start all ranks there");
    check(world, contenders);
    for (const Contender& contender : contenders) turn(world, contender);  // caches, connections
    std::vector<std::size_t> order(contenders.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::mt19937 generator(1);  // the same order on all ranks
    for (int round = 0; round < rounds; ++round) {
        std::ranges::shuffle(order, generator);
        for (const std::size_t i : order) seconds_[i].push_back(turn(world, contenders[i]));
    }
    check(world, contenders);
}

std::size_t Turns::index_of(std::string_view name) const {
    const auto found = std::ranges::find(contenders_, name, &Contender::name);
    ensure(found != contenders_.end(), "a contender of that name took turns");
    return static_cast<std::size_t>(found - contenders_.begin());
}

const Contender& Turns::find(std::string_view name) const {
    return contenders_[index_of(name)];
}

const std::vector<double>& Turns::seconds(std::string_view name) const {
    return seconds_[index_of(name)];
}

}  // namespace fullshard::micro
