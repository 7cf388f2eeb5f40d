#include "doctor/deadline.h"

#include "base/error.h"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <thread>
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

}  // namespace fullshard::doctor
