#include "base/clock.h"
#include "comm/agree.h"
#include "comm/ledger.h"
#include "comm/waiter.h"
#include "doctor/checks.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>

namespace fullshard::doctor {

namespace {

/// "8 x NVIDIA H200 (...)", kinds in alphabetical order.
std::string kinds_text(const std::vector<std::string>& descriptions) {
    std::map<std::string, int> counts;
    for (const std::string& description : descriptions) ++counts[description];
    std::string text;
    for (const auto& [description, count] : counts)
        text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, description);
    return text;
}

/// The devices of all ranks, of which the one with least to spare is told.
Finding told(const Subject& subject, const DeviceFacts& mine) {
    const std::optional<Needs>& needs = subject.request.needs;
    const std::array<std::int64_t, 3> numbers{mine.total_bytes, mine.free_bytes,
                                              needs ? needs->device_bytes : 0};
    std::vector<std::int64_t> all(numbers.size() *
                                  static_cast<std::size_t>(subject.world().size()));
    subject.world().all_gather(numbers, all);
    const auto descriptions = subject.world().all_gather(mine.description);
    const auto names = subject.world().all_gather(comm::process_name());
    const auto spare = [&](std::size_t rank) { return all[3 * rank + 1] - all[3 * rank + 2]; };
    std::size_t worst = 0;
    for (std::size_t rank = 1; rank < names.size(); ++rank) {
        if (spare(rank) < spare(worst)) worst = rank;
    }
    const std::string measured =
        fmt::format("{}; {} free of {}, {}", kinds_text(descriptions),
                    size_text(all[3 * worst + 1]), size_text(all[3 * worst]), names[worst]);
    if (!needs) return fine("devices", measured);
    const std::string required =
        fmt::format("{} by the deck, without activations", size_text(all[3 * worst + 2]));
    if (spare(worst) >= 0) return fine("devices", measured, required);
    return failure("devices", measured, required,
                   "use more ranks, a strategy that shards more, or fewer shard.slots; nvidia-smi "
                   "shows who else uses the device");
}

}  // namespace

Findings check_devices(const Subject& subject) {
    if (subject.request.devices == nullptr) return {};
    // Libraries of gigabytes are loaded meanwhile.
    const comm::Ledger::Patience patience(subject.job.ledger(),
                                          subject.request.deck.comm.start_timeout_s);
    Devices& devices = *subject.request.devices;
    Findings findings{told(subject, devices.open(subject.topology))};
    const auto connected = [&]() -> Findings {
        const double begin = now_seconds();
        devices.connect(subject.topology);
        return {
            fine("between devices", fmt::format("each kind of collective is right; started in {}",
                                                time_text(now_seconds() - begin)))};
    };
    for (const Finding& finding :
         guarded("between devices", "NCCL_DEBUG=INFO shows what NCCL tries", connected)) {
        findings.push_back(finding);
    }
    return findings;
}

}  // namespace fullshard::doctor
