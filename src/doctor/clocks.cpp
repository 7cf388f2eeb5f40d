#include "comm/clock_offsets.h"
#include "comm/waiter.h"
#include "doctor/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace fullshard::doctor {

namespace {

double wall_clock() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

}  // namespace

Findings check_clocks(const Subject& subject) {
    constexpr int kTrips = 20;
    constexpr double kMostSkew = 1.0;
    // Ranks of a host share its clock: one of each is asked.
    const comm::Group leaders =
        subject.world().split(subject.host.rank() == 0 ? 0 : -1, subject.world().rank());
    std::vector<comm::ClockOffset> offsets;
    if (leaders.size() > 1) offsets = comm::clock_offsets(leaders, kTrips, wall_clock);
    const std::vector<std::string> hosts =
        leaders.size() > 1 ? leaders.all_gather(comm::process_name()) : std::vector<std::string>{};
    subject.world().barrier();
    if (offsets.size() < 2) return {fine("clocks", "one host, one clock")};
    const auto skew = [](const comm::ClockOffset& offset) { return std::abs(offset.offset_s); };
    const auto worst = std::ranges::max_element(offsets, {}, skew);
    const auto slowest = std::ranges::max_element(offsets, {}, &comm::ClockOffset::round_trip_s);
    const std::string measured = fmt::format(
        "{} is {} {} rank 0; messages there and back take up to {}",
        hosts[static_cast<std::size_t>(worst - offsets.begin())], time_text(skew(*worst)),
        worst->offset_s < 0 ? "behind" : "ahead of", time_text(slowest->round_trip_s));
    const std::string required = "within 1 s: rank 0's clock decides about the end of the job";
    if (skew(*worst) <= kMostSkew) return {fine("clocks", measured, required)};
    return {warning("clocks", measured, required,
                    "have the nodes' clocks synchronised: chronyc tracking shows their state")};
}

}  // namespace fullshard::doctor
