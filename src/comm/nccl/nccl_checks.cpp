#include "comm/nccl/nccl_checks.h"

#include "base/error.h"
#include "comm/agree.h"
#include "comm/nccl/nccl_status.h"
#include "comm/waiter.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

namespace fullshard::comm {

namespace {

/// 2.28.9 orders NCCL's main and proxy thread; before, large jobs could hang.
constexpr int kOldestVersion = NCCL_VERSION(2, 28, 9);

std::string version_text(int code) {
    return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

}  // namespace

void prepare_environment() {
    constexpr int kKeepTheUsers = 0;
    ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", kKeepTheUsers);
}

std::vector<std::string> nccl_environment_notes() {
    std::vector<std::string> notes;
    if (variable("CUDA_DEVICE_MAX_CONNECTIONS") == "1") {
        notes.emplace_back(
            "CUDA_DEVICE_MAX_CONNECTIONS=1 keeps collectives from overlapping with kernels; "
            "unset it");
    }
    if (variable("NCCL_LAUNCH_ORDER_IMPLICIT") == "0") {
        notes.emplace_back(
            "NCCL_LAUNCH_ORDER_IMPLICIT=0 lets shard and replica collectives start in another "
            "order on each rank, which can hang; unset it");
    }
    std::vector<std::string> settings;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        if (text.starts_with("NCCL_") && text != "NCCL_LAUNCH_ORDER_IMPLICIT=1")
            settings.emplace_back(text);
    }
    std::ranges::sort(settings);
    if (!settings.empty())
        notes.push_back(
            fmt::format("NCCL is set up by the environment: {}", fmt::join(settings, " ")));
    return notes;
}

void check_version(const Group& world) {
    int version = 0;
    agree(world, [&] {
        check_nccl(ncclGetVersion(&version), "ncclGetVersion");
        if (version >= kOldestVersion) return;
        throw RunError(fmt::format(
            "NCCL {} is loaded, but FullShard needs {} or later, because jobs on many nodes could "
            "hang with older ones; install a newer NCCL, or put its folder first in "
            "LD_LIBRARY_PATH",
            version_text(version), version_text(kOldestVersion)));
    });
    agree_equal(world, "version of NCCL", static_cast<std::uint64_t>(version));
}

void check_devices(const Group& world, const std::string& uuid) {
    const std::vector<std::string> uuids = world.all_gather(uuid);
    const std::vector<std::string> hosts = world.all_gather(process_name());
    const std::vector<std::string> host_ids = world.all_gather(variable("NCCL_HOSTID"));
    // NCCL compares (host, GPU), and takes NCCL_HOSTID for the host where it is set.
    std::map<std::pair<std::string, std::string>, std::vector<std::size_t>> users;
    for (std::size_t rank = 0; rank < uuids.size(); ++rank) {
        users[{uuids[rank], host_ids[rank]}].push_back(rank);
    }
    std::vector<std::string> conflicts;
    for (const auto& [gpu, ranks] : users) {
        if (ranks.size() == 1) continue;
        std::vector<std::string> names;
        for (const std::size_t rank : ranks) names.push_back(hosts[rank]);
        conflicts.push_back(fmt::format("{} ({})", gpu.first, fmt::join(names, ", ")));
    }
    if (conflicts.empty()) return;
    agree(world, [&] {
        throw UsageError(fmt::format(
            "several ranks use one GPU: {}. NCCL needs a GPU for each rank: start as many ranks on "
            "a node as it has GPUs, and let each see all of them. To try several ranks on one GPU "
            "all the same, slowly, give each an NCCL_HOSTID of its own, and all of them "
            "NCCL_SOCKET_IFNAME=lo, NCCL_NVLS_ENABLE=0 and NCCL_MAX_CTAS=2",
            fmt::join(conflicts, "; ")));
    });
}

}  // namespace fullshard::comm
