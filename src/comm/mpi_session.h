// The life of MPI in this process.
#pragma once

#include <string>

namespace fullshard::comm {

/// Initialises MPI and finalises it. Construct it once, before anything else of comm, in a scope
/// that outlives every group, arena and communicator.
class MpiSession {
  public:
    /// Throws RunError when the library grants less than MPI_THREAD_SERIALIZED: the main thread and
    /// a ProgressThread call MPI in turns; other threads do so only to abort.
    MpiSession(int& argc, char**& argv);
    /// Finalises, but not while an exception unwinds: peers may never reach the collective.
    ~MpiSession();
    MpiSession(const MpiSession&) = delete;
    MpiSession& operator=(const MpiSession&) = delete;

    int rank() const { return rank_; }
    int size() const { return size_; }
    const std::string& host() const { return host_; }
    /// For example "MPI_THREAD_SERIALIZED": what the library granted.
    std::string thread_level() const;

    /// Prints "fullshard: <process>: <cause>" as one line and ends all ranks at once with
    /// `exit_code`. When ranks notice a problem at the same time, the lowest of them speaks.
    [[noreturn]] static void abort(const std::string& cause, int exit_code);
    /// Prints "fullshard: <line>" and ends all ranks at once with `exit_code`, from any thread.
    /// From here on signals have their default effect.
    [[noreturn]] static void end_job(const std::string& line, int exit_code);

  private:
    int rank_ = 0;
    int size_ = 0;
    std::string host_;
};

}  // namespace fullshard::comm
