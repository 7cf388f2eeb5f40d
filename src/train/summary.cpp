#include "train/summary.h"

#include "base/error.h"
#include "train/text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>

namespace fullshard::train {

namespace {

struct TrafficRow {
    const char* name;
    const char* key;
    std::int64_t shard::Traffic::*bytes;
};
constexpr std::array kTrafficRows{
    TrafficRow{"parameters gathered (logical)", "gathered", &shard::Traffic::gathered},
    TrafficRow{"gradients reduced (logical)", "reduced", &shard::Traffic::reduced},
    TrafficRow{"gradients read from ranks of the node", "node_local_read",
               &shard::Traffic::node_local_read},
    TrafficRow{"received over MPI", "lane_received", &shard::Traffic::lane_received},
    TrafficRow{"copied for sharding", "copied", &shard::Traffic::copied},
};

}  // namespace

void log_memory(Log& log, const std::vector<shard::Allocation>& plan,
                const std::vector<shard::Allocation>& allocated) {
    ensure(plan.size() == allocated.size(), "the memory plan lists what is allocated");
    log.info("memory for parameters, gradients and optimizer{:>21}{:>14}", "predicted",
             "allocated");
    for (std::size_t i = 0; i < plan.size(); ++i) {
        log.info("  {:<48}{:>14}{:>14}  {}", plan[i].purpose, bytes_text(plan[i].bytes),
                 bytes_text(allocated[i].bytes), allocated[i].node_shared ? "a node" : "a rank");
    }
}

void log_traffic(Log& log, const shard::Traffic& predicted, const shard::Traffic& counted) {
    log.info("bytes moved by this rank{:>40}{:>14}", "predicted", "counted");
    for (const TrafficRow& row : kTrafficRows) {
        log.info("  {:<48}{:>14}{:>14}", row.name, bytes_text(predicted.*row.bytes),
                 bytes_text(counted.*row.bytes));
    }
}

PhaseStatistics gather_phases(const std::array<double, kPhases>& mine, const comm::Group& world) {
    PhaseStatistics statistics{mine, mine, mine};
    world.all_reduce(statistics.min, comm::Reduction::kMin);
    world.all_reduce(statistics.mean, comm::Reduction::kSum);
    world.all_reduce(statistics.max, comm::Reduction::kMax);
    for (double& seconds : statistics.mean) seconds /= world.size();
    return statistics;
}

void log_phases(Log& log, const PhaseStatistics& phases) {
    const double total = std::accumulate(phases.mean.begin(), phases.mean.end(), 0.0);
    log.info("seconds over ranks{:>16}{:>10}{:>10}{:>8}", "min", "mean", "max", "share");
    for (std::size_t i = 0; i < kPhases; ++i) {
        log.info("  {:<22}{:>10.2f}{:>10.2f}{:>10.2f}{:>7.1f}%", name_of(static_cast<Phase>(i)),
                 phases.min[i], phases.mean[i], phases.max[i], 100.0 * phases.mean[i] / total);
    }
}

nlohmann::ordered_json to_json(const std::vector<shard::Allocation>& items) {
    auto list = nlohmann::ordered_json::array();
    for (const shard::Allocation& item : items) {
        list.push_back({{"purpose", item.purpose},
                        {"bytes", item.bytes},
                        {"per", item.node_shared ? "node" : "rank"}});
    }
    return list;
}

nlohmann::ordered_json to_json(const shard::Traffic& traffic) {
    nlohmann::ordered_json object;
    for (const TrafficRow& row : kTrafficRows) object[row.key] = traffic.*row.bytes;
    return object;
}

nlohmann::ordered_json to_json(const PhaseStatistics& phases) {
    nlohmann::ordered_json object;
    for (std::size_t i = 0; i < kPhases; ++i) {
        object[std::string(name_of(static_cast<Phase>(i)))] = {
            {"min", phases.min[i]}, {"mean", phases.mean[i]}, {"max", phases.max[i]}};
    }
    return object;
}

}  // namespace fullshard::train
