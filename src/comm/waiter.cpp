#include "comm/waiter.h"

#include "base/clock.h"
#include "base/error.h"

#include <fmt/format.h>
#include <sched.h>

#include <chrono>
#include <thread>

namespace fullshard::comm {

namespace {
constexpr long kSpins = 64;
constexpr long kYields = 4096;
constexpr auto kSleep = std::chrono::microseconds(50);

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

Waiter::Waiter(double timeout_s, std::function<std::string()> awaited)
    : timeout_s_(timeout_s), awaited_(std::move(awaited)) {}

void Waiter::pause() {
    ++polls_;
    if (polls_ <= kSpins) return;
    if (begin_ == 0.0) begin_ = now_seconds();
    if (now_seconds() - begin_ > timeout_s_) {
        throw CommunicationError(
            fmt::format("no answer within {} s while waiting for {}", timeout_s_, awaited_()));
    }
    if (polls_ <= kYields) {
        sched_yield();
    } else {
        std::this_thread::sleep_for(kSleep);
    }
}

}  // namespace fullshard::comm
