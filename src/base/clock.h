// Monotonic time in seconds.
#pragma once

#include <chrono>

namespace fullshard {

inline double now_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Adds the lifetime of the object to a total, in seconds.
class ScopedTimer {
  public:
    explicit ScopedTimer(double& total) : total_(total), begin_(now_seconds()) {}
    ~ScopedTimer() { total_ += now_seconds() - begin_; }
    ScopedTimer(const ScopedTimer&) = delete;
    ScopedTimer& operator=(const ScopedTimer&) = delete;

  private:
    double& total_;
    double begin_;
};

}  // namespace fullshard
