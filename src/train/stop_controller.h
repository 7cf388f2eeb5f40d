// When a run stops before its last step: one decision for all ranks.
#pragma once

#include "comm/group.h"
#include "comm/watchdog.h"
#include "config/deck.h"
#include "train/stop.h"

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace fullshard::train {

/// When the job will be killed, in seconds since 1970; none: nobody says. The smaller one of
/// `slurm_end` (the text of SLURM_JOB_END_TIME; empty: unset) and `limit_s` after `started`
/// (0: no limit). Throws UsageError for a text that is no number.
std::optional<double> end_of_job(const std::string& slurm_end, double limit_s, double started);

/// Each rank casts a vote, bits of StopCause; the votes of all ranks go along with an exchange that
/// happens anyway, and every rank draws the same conclusion from them. The clock is rank 0's.
///
/// `watch` is the other half, for the watchdog's thread of each rank: it ends the job at once after
/// a second signal, when the ranks have not agreed within stop.grace_s of a signal, and when the
/// checkpoint that follows, or one that was being written, takes longer than stop.save_s. Until the
/// ranks first vote, the deadline of the start holds instead.
class StopController {
  public:
    /// `end`: of the job, see end_of_job(). All references outlive the object.
    StopController(const StopRequest& request, const config::Stop& keys, std::optional<double> end);

    /// This rank's vote: what it was asked, and on rank 0 whether the job's end is near.
    double vote(int rank) const;
    /// The votes of all ranks, by rank; whether to stop. Once true, it stays true.
    bool judge(std::span<const double> votes);
    /// The same, with an exchange of its own. Collective.
    bool judge_now(const comm::Group& world);
    /// In addition to the votes: the deck asked for this step to be the last.
    void stop_at_step() { decide(StopCause::kStopAtStep, 0); }

    bool stopping() const { return stopping_; }
    /// "USR1 on rank 2"; empty while nobody has asked.
    const std::string& reason() const { return reason_; }

    /// Seconds that the last step, and the last checkpoint, took: the run must still be able to
    /// write one when the job's end is near.
    void note_step(double seconds);
    void note_save(double seconds);

    /// While it lives, the ranks write a checkpoint and cannot vote.
    class Saving {
      public:
        explicit Saving(StopController& stop);
        ~Saving();
        Saving(const Saving&) = delete;
        Saving& operator=(const Saving&) = delete;

      private:
        StopController& stop_;
    };
    /// What the ranks agreed on is done.
    void stopped() { state_ = State::kStopped; }

    /// Thread-safe.
    std::optional<comm::Watchdog::Verdict> watch() const;

  private:
    enum class State : std::uint8_t { kStarting, kRunning, kAgreed, kStopped };

    void decide(StopCause cause, int rank);
    bool end_is_near() const;

    const StopRequest& request_;
    config::Stop keys_;
    std::optional<double> end_;
    double longest_step_s_ = 0.0;
    double longest_save_s_ = 0.0;
    bool stopping_ = false;
    std::string reason_;
    std::atomic<State> state_ = State::kStarting;
    // Monotonic times.
    std::atomic<double> agreed_at_ = 0.0;  ///< valid in state kAgreed
    std::atomic<bool> saving_ = false;     ///< since `turned_at_`, else not since then
    std::atomic<double> turned_at_ = 0.0;
};

}  // namespace fullshard::train
