#include "comm/agree.h"

#include "base/clock.h"
#include "comm/waiter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

namespace fullshard::comm {

namespace {

struct Failure {
    std::string text;
    ExitCode code = ExitCode::kRunError;
};

/// How `work` failed here, if it did.
template <typename Work>
std::optional<Failure> failure_of(Work&& work) {
    try {
        work();
    } catch (const UsageError& error) {
        // The user's mistake, the same on every rank: no rank in the text.
        return Failure{error.what(), error.exit_code()};
    } catch (const Error& error) {
        return Failure{fmt::format("{}: {}", process_name(), error.what()), error.exit_code()};
    } catch (const std::exception& error) {
        return Failure{fmt::format("{}: {}", process_name(), error.what())};
    }
    return std::nullopt;
}

/// What rank `source` knows, thrown everywhere.
[[noreturn]] void throw_failure_of(const Group& group, std::optional<Failure> failure, int source) {
    const Failure mine = std::move(failure).value_or(Failure{});
    const std::string text = group.broadcast(mine.text, source);
    const std::string code = group.broadcast(std::to_string(static_cast<int>(mine.code)), source);
    throw AgreedError(text, static_cast<ExitCode>(std::stoi(code)));
}

}  // namespace

void agree(const Group& group, const std::function<void()>& work) {
    std::optional<Failure> failure = failure_of(work);
    std::array<std::int64_t, 1> first_failing{failure ? group.rank() : group.size()};
    group.all_reduce(first_failing, Reduction::kMin);
    if (first_failing[0] == group.size()) return;
    throw_failure_of(group, std::move(failure), static_cast<int>(first_failing[0]));
}

void agree_done(const Group& group, std::string_view what, double timeout_s,
                const std::function<bool()>& poll) {
    // Between two rounds: short at first, for most work is done at once, then long enough to leave
    // the core to the work.
    constexpr auto kLongestPause = std::chrono::milliseconds(5);
    auto pause = std::chrono::microseconds(50);
    const double started = now_seconds();
    bool done = false;
    for (;;) {
        std::optional<Failure> failure = failure_of([&] { done = done || poll(); });
        const bool late = !done && now_seconds() - started > timeout_s;
        std::array<std::int64_t, 3> lowest{failure ? group.rank() : group.size(), done ? 1 : 0,
                                           late ? 0 : 1};
        group.all_reduce(lowest, Reduction::kMin);
        const auto [first_failing, all_done, none_late] = lowest;
        if (first_failing < group.size()) {
            throw_failure_of(group, std::move(failure), static_cast<int>(first_failing));
        }
        if (all_done != 0) return;
        if (none_late == 0) break;
        std::this_thread::sleep_for(pause);
        pause = std::min<std::chrono::microseconds>(2 * pause, kLongestPause);
    }
    const std::int64_t mine = done ? 1 : 0;
    std::vector<std::int64_t> by_rank(static_cast<std::size_t>(group.size()));
    group.all_gather(std::span(&mine, 1), by_rank);
    std::vector<int> missing;
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
        if (by_rank[rank] == 0) missing.push_back(group.members()[rank]);
    }
    throw AgreedError(fmt::format("no end of the {} within {} s on rank{} {}", what, timeout_s,
                                  missing.size() == 1 ? "" : "s", rank_list(missing)),
                      ExitCode::kCommunication);
}

void agree_equal(const Group& group, std::string_view what, std::uint64_t fingerprint) {
    const auto mine = static_cast<std::int64_t>(fingerprint);
    std::vector<std::int64_t> all(static_cast<std::size_t>(group.size()));
    group.all_gather(std::span(&mine, 1), all);
    const auto other =
        std::ranges::find_if(all, [&](std::int64_t value) { return value != all[0]; });
    if (other == all.end()) return;
    throw AgreedError(fmt::format("rank {} has another {} than rank 0; all hosts must see the same "
                                  "files and run the same program",
                                  other - all.begin(), what),
                      ExitCode::kRunError);
}

}  // namespace fullshard::comm
