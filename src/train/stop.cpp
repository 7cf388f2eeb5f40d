#include "train/stop.h"

#include "base/clock.h"

#include <signal.h>
#include <time.h>

#include <array>
#include <atomic>

namespace fullshard::train {

namespace {

struct Handled {
    int signal;
    StopCause cause;
};
constexpr std::array kHandled{
    Handled{SIGUSR1, StopCause::kUsr1}, Handled{SIGUSR2, StopCause::kUsr2},
    Handled{SIGTERM, StopCause::kTerm}, Handled{SIGINT, StopCause::kInterrupt}};

// The only state a signal handler may touch; lock-free, hence safe there.
std::atomic<std::uint8_t> received_causes{0};
std::atomic<std::int64_t> first_ns{0};  ///< monotonic; 0: no signal came
std::atomic<bool> came_again{false};
static_assert(std::atomic<std::uint8_t>::is_always_lock_free);
static_assert(std::atomic<std::int64_t>::is_always_lock_free);
static_assert(std::atomic<bool>::is_always_lock_free);

std::array<struct sigaction, kHandled.size()> previous_actions;

void note_request(int signal) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);  // async-signal-safe, as now_seconds() need not be
    const std::int64_t now_ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
    std::int64_t none = 0;
    if (!first_ns.compare_exchange_strong(none, now_ns) &&
        static_cast<double>(now_ns - none) * 1e-9 > StopRequest::kRepeatSeconds) {
        came_again = true;
    }
    for (const Handled& each : kHandled) {
        if (each.signal == signal) received_causes |= static_cast<std::uint8_t>(each.cause);
    }
}

struct sigaction our_action() {
    struct sigaction action {};
    action.sa_handler = note_request;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    return action;
}

}  // namespace

StopRequest::StopRequest() {
    received_causes = 0;
    first_ns = 0;
    came_again = false;
    const struct sigaction action = our_action();
    sigset_t handled;
    sigemptyset(&handled);
    for (std::size_t i = 0; i < kHandled.size(); ++i) {
        sigaction(kHandled[i].signal, &action, &previous_actions[i]);
        sigaddset(&handled, kHandled[i].signal);
    }
    // A launcher may have blocked them.
    pthread_sigmask(SIG_UNBLOCK, &handled, nullptr);
}

StopRequest::~StopRequest() {
    for (std::size_t i = 0; i < kHandled.size(); ++i) {
        sigaction(kHandled[i].signal, &previous_actions[i], nullptr);
    }
}

std::uint8_t StopRequest::received() const {
    return received_causes;
}

std::optional<double> StopRequest::received_at() const {
    const std::int64_t ns = first_ns;
    if (ns == 0) return std::nullopt;
    return static_cast<double>(ns) * 1e-9;
}

bool StopRequest::insisted() const {
    return came_again;
}

bool StopRequest::reclaim() {
    bool replaced = false;
    const struct sigaction ours = our_action();
    for (const Handled& each : kHandled) {
        struct sigaction current {};
        sigaction(each.signal, &ours, &current);
        replaced |= current.sa_handler != note_request;
    }
    return replaced;
}

}  // namespace fullshard::train
