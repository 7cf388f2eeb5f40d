#include "doctor/deadline.h"

#include "base/error.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <future>
#include <utility>

namespace fullshard::doctor {

void within(double seconds, const std::string& what, std::function<void()> work) {
    std::packaged_task<void()> task(std::move(work));
    std::future<void> result = task.get_future();
    std::thread thread(std::move(task));
    if (result.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready) {
        thread.detach();
        throw RunError(fmt::format("{}: no answer within {:.0f} s", what, seconds));
    }
    thread.join();
    result.get();
}

Watchdog::Watchdog(double seconds, std::string last_words)
    : thread_([this, seconds, words = std::move(last_words)] {
          std::unique_lock lock(mutex_);
          const auto limit = std::chrono::duration<double>(seconds);
          if (ended_.wait_for(lock, limit, [this] { return over_; })) return;
          std::fputs(words.c_str(), stdout);
          std::fflush(stdout);
          // The rank that speaks needs a moment before the launcher notices that one has gone.
          if (words.empty()) std::this_thread::sleep_for(std::chrono::seconds(1));
          std::_Exit(static_cast<int>(ExitCode::kCommunication));
      }) {}

Watchdog::~Watchdog() {
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
    }
    ended_.notify_all();
    thread_.join();
}

}  // namespace fullshard::doctor
