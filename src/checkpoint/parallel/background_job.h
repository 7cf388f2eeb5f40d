// Work that goes on beside its owner, and may be left to itself.
#pragma once

#include "base/error.h"

#include <chrono>
#include <future>
#include <thread>
#include <utility>

namespace fullshard::checkpoint {

/// A thread with one job at a time. Unlike std::async, it can be abandoned: a file system that
/// hangs must not hang the end of the run.
template <typename Result>
class BackgroundJob {
  public:
    BackgroundJob() = default;
    BackgroundJob(const BackgroundJob&) = delete;
    BackgroundJob& operator=(const BackgroundJob&) = delete;
    ~BackgroundJob() { forget(); }

    /// What `work` captures outlives the job, also an abandoned one.
    template <typename Work>
    void start(Work work) {
        ensure(!thread_.joinable(), "one job at a time");
        std::packaged_task<Result()> task(std::move(work));
        result_ = task.get_future();
        thread_ = std::thread(std::move(task));
    }
    /// The job has ended, well or not. Never blocks.
    bool ended() const {
        return result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    }
    /// What the job returned or threw. Waits for its end.
    Result take() {
        if (thread_.joinable()) thread_.join();
        return result_.get();
    }
    /// Waits for the job, if there is one, and drops its result.
    void forget() {
        if (thread_.joinable()) thread_.join();
        result_ = {};
    }
    /// Leaves a job that does not end to itself.
    void abandon() {
        if (thread_.joinable()) thread_.detach();
        result_ = {};
    }

  private:
    std::future<Result> result_;
    std::thread thread_;
};

}  // namespace fullshard::checkpoint
