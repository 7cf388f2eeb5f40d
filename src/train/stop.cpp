#include "train/stop.h"

#include <signal.h>

#include <array>
#include <atomic>

namespace fullshard::train {

namespace {

constexpr std::array kSignals{SIGUSR1, SIGTERM};

// The only state a signal handler may touch; lock-free, hence safe there.
std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

std::array<struct sigaction, kSignals.size()> previous_actions;

void note_request(int) {
    requested.store(true, std::memory_order_relaxed);
}

}  // namespace

StopRequest::StopRequest() {
    requested = false;
    struct sigaction action {};
    action.sa_handler = note_request;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
        sigaction(kSignals[i], &action, &previous_actions[i]);
    }
}

StopRequest::~StopRequest() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
        sigaction(kSignals[i], &previous_actions[i], nullptr);
    }
}

bool StopRequest::received() const {
    return requested.load(std::memory_order_relaxed);
}

}  // namespace fullshard::train
