#include "comm/placement.h"

#include "base/error.h"
#include "base/host_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <utility>

namespace fullshard::comm {

namespace {

using Masks = std::vector<std::span<const int>>;

std::vector<int> union_of(const Masks& masks) {
    std::vector<int> all;
    for (const auto mask : masks) all.insert(all.end(), mask.begin(), mask.end());
    std::ranges::sort(all);
    all.erase(std::ranges::unique(all).begin(), all.end());
    return all;
}

struct Host {
    std::string name;
    int cpus = 0;  ///< online
    Masks masks;   ///< of its ranks
};

/// In the order of ranks. Emulated nodes of a host are one: they compete for its CPUs.
std::vector<Host> hosts_of(std::span<const RankPlace> places) {
    std::vector<Host> hosts;
    std::map<std::string, std::size_t> index;
    for (const RankPlace& place : places) {
        const auto [position, is_new] = index.try_emplace(place.host, hosts.size());
        if (is_new) hosts.push_back({place.host, place.node_cpus, {}});
        hosts[position->second].masks.emplace_back(place.cpus);
    }
    return hosts;
}

std::string threads_text(std::int64_t threads) {
    return fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
}

/// "srun ... or mpirun ..." that gives each rank CPUs of its own.
std::string binding_remedy(std::int64_t threads) {
    return fmt::format(
        "start with srun --cpus-per-task={0} --cpu-bind=cores or mpirun --map-by slot:PE={0}",
        threads);
}

/// The worst of what is wrong with a host's masks; the lesser troubles follow from it.
std::optional<std::string> trouble(const Masks& masks, int node_cpus, std::int64_t threads) {
    const auto ranks = static_cast<std::int64_t>(masks.size());
    const std::vector<int> usable = union_of(masks);
    const auto usable_count = static_cast<std::int64_t>(usable.size());
    const std::string demand =
        fmt::format("{} rank{} with {} each", ranks, ranks == 1 ? "" : "s", threads_text(threads));
    if (ranks * threads > node_cpus) {
        return fmt::format(
            "{} on {} CPUs: they take turns; start fewer ranks a node or lower kernels.threads",
            demand, node_cpus);
    }
    if (ranks * threads > usable_count) {
        return fmt::format("{} may use CPUs {} of {} only: they take turns; {}", demand,
                           cpu_list(usable), node_cpus, binding_remedy(threads));
    }
    const auto narrow = std::ranges::find_if(
        masks, [&](auto mask) { return static_cast<std::int64_t>(mask.size()) < threads; });
    if (narrow != masks.end()) {
        return fmt::format("local rank {} may use CPUs {} only for its {}; {}",
                           narrow - masks.begin(), cpu_list(*narrow), threads_text(threads),
                           binding_remedy(threads));
    }
    if (ranks == 1) return std::nullopt;
    const auto is_everything = [&](auto mask) { return mask.size() == usable.size(); };
    if (std::ranges::all_of(masks, is_everything)) {
        return fmt::format(
            "ranks are not bound: each of {} may use CPUs {}, and the system moves them about; {}",
            ranks, cpu_list(usable), binding_remedy(threads));
    }
    for (auto one = masks.begin(); one != masks.end(); ++one) {
        for (auto other = masks.begin(); other != one; ++other) {
            std::vector<int> both;
            std::ranges::set_intersection(*one, *other, std::back_inserter(both));
            if (both.empty()) continue;
            return fmt::format("local ranks {} and {} may both use CPUs {}; {}",
                               other - masks.begin(), one - masks.begin(), cpu_list(both),
                               binding_remedy(threads));
        }
    }
    return std::nullopt;
}

std::string hosts_text(const std::vector<std::string>& hosts) {
    constexpr std::size_t kNamed = 3;
    if (hosts.size() <= kNamed) return fmt::format("{}", fmt::join(hosts, ", "));
    return fmt::format("{} and {} more", fmt::join(std::span(hosts).first(kNamed), ", "),
                       hosts.size() - kNamed);
}

}  // namespace

std::vector<int> allowed_cpus() {
    // The kernel refuses a mask that is shorter than its own, whose length it does not tell.
    constexpr int kMostCpus = 1 << 20;
    for (int cpus = 1024; cpus <= kMostCpus; cpus *= 2) {
        const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
        const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(
            CPU_ALLOC(cpus), [](cpu_set_t* set) { CPU_FREE(set); });
        if (!mask) throw std::bad_alloc();
        if (sched_getaffinity(0, bytes, mask.get()) != 0) {
            if (errno == EINVAL) continue;
            break;
        }
        std::vector<int> allowed;
        for (int cpu = 0; cpu < cpus; ++cpu) {
            if (CPU_ISSET_S(cpu, bytes, mask.get())) allowed.push_back(cpu);
        }
        return allowed;
    }
    throw RunError(fmt::format("sched_getaffinity failed: {}", std::strerror(errno)));
}

std::vector<RankPlace> gather_places(const Topology& topology) {
    const std::string mine =
        fmt::format("{} {} {} {} {}", host_name(), topology.node_index, topology.node.rank(),
                    sysconf(_SC_NPROCESSORS_ONLN), fmt::join(allowed_cpus(), " "));
    std::vector<RankPlace> places;
    for (const std::string& text : topology.world.all_gather(mine)) {
        RankPlace place;
        place.rank = static_cast<int>(places.size());
        std::istringstream words(text);
        words >> place.host >> place.node >> place.local_rank >> place.node_cpus;
        place.cpus.assign(std::istream_iterator<int>(words), {});
        places.push_back(std::move(place));
    }
    return places;
}

std::string cpu_list(std::span<const int> cpus) {
    std::string text;
    for (std::size_t first = 0; first < cpus.size();) {
        std::size_t last = first;
        while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
        if (!text.empty()) text += ',';
        text += first == last ? fmt::format("{}", cpus[first])
                              : fmt::format("{}-{}", cpus[first], cpus[last]);
        first = last + 1;
    }
    return text.empty() ? "none" : text;
}

bool have_cpus(std::span<const RankPlace> places, std::int64_t cpus) {
    return std::ranges::all_of(hosts_of(places), [&](const Host& host) {
        const auto is_wide = [&](auto mask) { return std::ssize(mask) >= cpus; };
        return std::ssize(union_of(host.masks)) >= std::ssize(host.masks) * cpus &&
               std::ranges::all_of(host.masks, is_wide);
    });
}

std::vector<std::string> placement_warnings(std::span<const RankPlace> places,
                                            std::int64_t threads) {
    std::vector<std::pair<std::string, std::vector<std::string>>> found;
    for (const Host& host : hosts_of(places)) {
        const auto sentence = trouble(host.masks, host.cpus, threads);
        if (!sentence) continue;
        auto same =
            std::ranges::find(found, *sentence, [](const auto& pair) { return pair.first; });
        if (same == found.end())
            same = found.insert(found.end(), {*sentence, std::vector<std::string>()});
        same->second.push_back(host.name);
    }
    std::vector<std::string> warnings;
    for (const auto& [sentence, names] : found)
        warnings.push_back(fmt::format("{}: {}", hosts_text(names), sentence));
    return warnings;
}

}  // namespace fullshard::comm
