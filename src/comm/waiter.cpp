#include "comm/waiter.h"

#include "base/clock.h"
#include "base/error.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace fullshard::comm {

namespace {
constexpr long kSpins = 64;
constexpr long kYields = 4096;
constexpr auto kSleep = std::chrono::microseconds(50);
constexpr double kEntryInterval = 1.0;  // seconds
/// Longer between two polls: the process was stopped, or did work of its own.
constexpr double kLongestPoll = 1.0;  // seconds

std::string& stored_process_name() {
    static std::string name = "rank ?";
    return name;
}
}  // namespace

const std::string& process_name() {
    return stored_process_name();
}
void set_process_name(std::string name) {
    stored_process_name() = std::move(name);
}

Waiter::Waiter(Ledger& ledger, double timeout_s, std::function<Wait()> awaited)
    : ledger_(ledger), timeout_s_(timeout_s), awaited_(std::move(awaited)) {}

Waiter::~Waiter() {
    if (!timed_out_) ledger_.waits_no_more();
}

void Waiter::pause() {
    ++polls_;
    if (polls_ <= kSpins) return;
    const double now = now_seconds();
    if (last_ > 0.0) waited_s_ += std::min(now - last_, kLongestPoll);
    last_ = now;
    if (waited_s_ >= next_entry_s_) {
        ledger_.waits(awaited_());
        next_entry_s_ = waited_s_ + kEntryInterval;
    }
    if (waited_s_ > timeout_s_) {
        Wait wait = awaited_();
        const std::string missing =
            wait.missing.empty()
                ? ""
                : fmt::format(" (rank{} {} missing)", wait.missing.size() == 1 ? "" : "s",
                              rank_list(wait.missing));
        const std::string text = fmt::format("no answer within {} s while waiting for {}{}",
                                             timeout_s_, wait.what, missing);
        ledger_.waits(std::move(wait));
        timed_out_ = true;
        throw TimeoutError(text);
    }
    if (polls_ <= kYields) {
        sched_yield();
    } else {
        std::this_thread::sleep_for(kSleep);
    }
}

}  // namespace fullshard::comm
