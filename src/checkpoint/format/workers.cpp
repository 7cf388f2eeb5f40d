#include "checkpoint/format/workers.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

namespace fullshard::checkpoint {

int default_threads() {
    return std::clamp(2 * static_cast<int>(std::thread::hardware_concurrency()), 2, 16);
}

void share_work(std::int64_t count, int threads, const std::function<Worker()>& make_worker) {
    std::atomic<std::int64_t> next = 0;
    std::mutex mutex;
    std::exception_ptr first;
    const auto run = [&] {
        try {
            const Worker worker = make_worker();
            for (std::int64_t item = next++; item < count; item = next++) worker(item);
        } catch (...) {
            const std::lock_guard lock(mutex);
            if (!first) first = std::current_exception();
            next = count;
        }
    };
    {
        std::vector<std::jthread> others;
        const std::int64_t wanted = std::min<std::int64_t>(threads, count);
        for (std::int64_t i = 1; i < wanted; ++i) others.emplace_back(run);
        run();
    }
    if (first) std::rethrow_exception(first);
}

SharedProgress::SharedProgress(std::int64_t total, ProgressReport report)
    : total_(total), report_(std::move(report)) {}

void SharedProgress::add(std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    if (report_) report_(done_, total_);
}

}  // namespace fullshard::checkpoint
