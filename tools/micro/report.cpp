#include "micro/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>

namespace fullshard::micro {

struct Report::Row {
    std::string name;
    std::string unit;
    Spread value;
    std::string limit_name = {};
    double limit = 0;
    Spread ratio = {};
    double best_ratio = 0;
    std::optional<double> goal = {};
};

namespace {

/// What is compared of a turn, the larger the better: calls or bytes in a second.
std::vector<double> rates(const Turns& turns, std::string_view name, Limit::Of of) {
    const double work = of == Limit::Of::kBandwidth ? turns.find(name).bytes : 1.0;
    std::vector<double> rates = turns.seconds(name);
    for (double& value : rates) value = work / value;
    return rates;
}

/// A rate in the unit that is printed.
std::vector<double> printed(std::vector<double> rates, Limit::Of of) {
    for (double& rate : rates) rate = of == Limit::Of::kBandwidth ? rate * 1e-9 : 1e3 / rate;
    return rates;
}

const char* unit_of(Limit::Of of) {
    return of == Limit::Of::kBandwidth ? "GB/s" : "ms";
}

}  // namespace

Report::Report(std::string program, const comm::Group& world, const Options& options)
    : program_(std::move(program)),
      ranks_(world.size()),
      speaks_(world.rank() == 0),
      options_(options) {}

void Report::title(std::string_view text) const {
    if (speaks_ && !options_.json) {
        fmt::print("\n{}, {} rank{}, {} turns each: median (quartiles)\n", text, ranks_,
                   ranks_ == 1 ? "" : "s", options_.rounds);
        std::fflush(stdout);
    }
}

void Report::line(const Turns& turns, std::string_view name) const {
    const auto of = turns.find(name).bytes > 0 ? Limit::Of::kBandwidth : Limit::Of::kSpeed;
    print({std::string(name), unit_of(of), spread_of(printed(rates(turns, name, of), of))});
}

void Report::line(const Turns& turns, std::string_view name, const Limit& limit) const {
    const std::vector<double> own = rates(turns, name, limit.of);
    std::vector<double> best(own.size());
    for (const std::string& other : limit.names) {
        const std::vector<double> others = rates(turns, other, limit.of);
        for (std::size_t i = 0; i < best.size(); ++i) best[i] = std::max(best[i], others[i]);
    }
    std::vector<double> ratios(own.size());
    for (std::size_t i = 0; i < own.size(); ++i) ratios[i] = own[i] / best[i];
    print({std::string(name), unit_of(limit.of), spread_of(printed(own, limit.of)),
           fmt::format("{}", fmt::join(limit.names, " | ")),
           spread_of(printed(best, limit.of)).median, spread_of(ratios),
           *std::ranges::max_element(own) / *std::ranges::max_element(best), limit.goal});
}

void Report::print(const Row& row) const {
    if (!speaks_) return;
    if (options_.json) {
        nlohmann::ordered_json line{
            {"program", program_},      {"name", row.name},          {"ranks", ranks_},
            {"mib", options_.mib},      {"rounds", options_.rounds}, {"value", row.value.median},
            {"lower", row.value.lower}, {"upper", row.value.upper},  {"unit", row.unit}};
        if (!row.limit_name.empty()) {
            line["limit_name"] = row.limit_name;
            line["limit"] = row.limit;
            line["ratio"] = row.ratio.median;
            line["ratio_lower"] = row.ratio.lower;
            line["ratio_upper"] = row.ratio.upper;
            line["best_ratio"] = row.best_ratio;
        }
        if (row.goal) line["goal"] = *row.goal;
        fmt::print("{}\n", line.dump());
    } else {
        fmt::print("  {:<46}{:>9.3f} {:<5}({:.3f}-{:.3f})\n", row.name, row.value.median, row.unit,
                   std::min(row.value.lower, row.value.upper),
                   std::max(row.value.lower, row.value.upper));
        if (!row.limit_name.empty()) {
            fmt::print("      {:.2f} ({:.2f}-{:.2f}, best {:.2f}) x {} [{:.3f} {}]",
                       row.ratio.median, row.ratio.lower, row.ratio.upper, row.best_ratio,
                       row.limit_name, row.limit, row.unit);
            if (row.goal) {
                fmt::print(", goal {}: {}", *row.goal,
                           row.ratio.median >= *row.goal ? "met" : "MISSED");
            }
            fmt::print("\n");
        }
    }
    std::fflush(stdout);
}

}  // namespace fullshard::micro
