// Requests from outside to stop.
#pragma once

namespace fullshard::train {

/// While it lives, SIGUSR1 and SIGTERM only set a flag in this process: make it before MPI starts,
/// so that a signal during start-up or shut-down does not kill a rank. A signal may reach some
/// ranks only: the trainer asks all of them each step before it acts.
class StopRequest {
  public:
    StopRequest();
    ~StopRequest();  ///< restores what was there before
    StopRequest(const StopRequest&) = delete;
    StopRequest& operator=(const StopRequest&) = delete;

    /// Whether this process was asked.
    bool received() const;
};

}  // namespace fullshard::train
