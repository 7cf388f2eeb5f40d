// Work that several threads share.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

namespace fullshard::checkpoint {

/// Called with bytes done and total, from one thread at a time. May be empty.
using ProgressReport = std::function<void(std::int64_t done, std::int64_t total)>;

/// Handles item number `item`.
using Worker = std::function<void(std::int64_t item)>;

/// Threads that keep a disk busy while others check or convert what they have read: twice the
/// processor's cores, between 2 and 16.
int default_threads();

/// Calls `make_worker` once in each of `threads` threads, which then take the items [0, count) in
/// order. The first exception ends the work of all and is thrown again here, after they have
/// stopped.
void share_work(std::int64_t count, int threads, const std::function<Worker()>& make_worker);

/// Sums up what threads have done.
class SharedProgress {
  public:
    SharedProgress(std::int64_t total, ProgressReport report);
    void add(std::int64_t bytes);

  private:
    std::mutex mutex_;
    std::int64_t done_ = 0;
    std::int64_t total_;
    ProgressReport report_;
};

}  // namespace fullshard::checkpoint
