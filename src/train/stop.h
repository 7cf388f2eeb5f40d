// Requests from outside to stop.
#pragma once

#include <cstdint>
#include <optional>

namespace fullshard::train {

/// Why a rank wants to stop: bits, so that several fit one number that ranks exchange.
enum class StopCause : std::uint8_t {
    kUsr1 = 1,
    kUsr2 = 2,
    kTerm = 4,
    kInterrupt = 8,
    kEndOfJob = 16,
    kStopAtStep = 32,
};

/// While it lives, SIGUSR1, SIGUSR2, SIGTERM and SIGINT only leave a mark in this process: make it
/// before MPI starts, so that a signal during start-up or shut-down does not kill a rank. A signal
/// may reach some ranks only: StopController asks all of them before the run acts.
class StopRequest {
  public:
    /// Slurm and mpirun send TERM twice: a signal within this time after the first one repeats it.
    static constexpr double kRepeatSeconds = 2.0;

    StopRequest();
    ~StopRequest();  ///< restores what was there before
    StopRequest(const StopRequest&) = delete;
    StopRequest& operator=(const StopRequest&) = delete;

    /// Bits of StopCause for the signals that came; 0: none.
    std::uint8_t received() const;
    /// Monotonic time of the first signal, as now_seconds() tells it.
    std::optional<double> received_at() const;
    /// Whether a signal came later than kRepeatSeconds after the first: end at once.
    bool insisted() const;

    /// Libraries may take signals for themselves (NVIDIA/nccl#704): sets the handlers again.
    /// Returns whether any had been replaced.
    bool reclaim();
};

}  // namespace fullshard::train
