// Limits on work that no timeout of ours reaches: system calls, and calls of libraries.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace fullshard::doctor {

/// Runs `work`, which calls no MPI, in a thread and waits for it. Throws what it threw, and
/// RunError naming `what` when it has not ended within `seconds`: it is then left to itself, so it
/// must own all that it uses.
void within(double seconds, const std::string& what, std::function<void()> work);

/// Ends this process with the exit code of failed communication, unless it is destroyed within
/// `seconds`. For calls of MPI and HDF5 that wait for other ranks and know no deadline. Every rank
/// has one, so the job ends even where the launcher would let it hang.
class Watchdog {
  public:
    /// `last_words` is printed to standard output by then; empty on all ranks but one.
    Watchdog(double seconds, std::string last_words);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

  private:
    std::mutex mutex_;
    std::condition_variable ended_;
    bool over_ = false;
    std::thread thread_;
};

}  // namespace fullshard::doctor
