#include "train/stop_controller.h"

#include "base/clock.h"
#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <vector>

namespace fullshard::train {

namespace {

double wall_seconds() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

struct CauseName {
    StopCause cause;
    const char* name;
    bool is_signal;
};
/// In the order in which one of several is named.
constexpr std::array kCauseNames{CauseName{StopCause::kUsr1, "USR1", true},
                                 CauseName{StopCause::kUsr2, "USR2", true},
                                 CauseName{StopCause::kTerm, "TERM", true},
                                 CauseName{StopCause::kInterrupt, "INT", true},
                                 CauseName{StopCause::kEndOfJob, "the job's end is near", false},
                                 CauseName{StopCause::kStopAtStep, "train.stop_at_step", false}};

}  // namespace

std::optional<double> end_of_job(const std::string& slurm_end, double limit_s, double started) {
    std::optional<double> end;
    if (!slurm_end.empty()) {
        std::int64_t seconds = 0;
        const char* last = slurm_end.data() + slurm_end.size();
        const auto [rest, error] = std::from_chars(slurm_end.data(), last, seconds);
        if (error != std::errc() || rest != last || seconds <= 0) {
            throw UsageError(fmt::format(
                "SLURM_JOB_END_TIME = '{}' is no time in seconds since 1970; unset it, or set it "
                "as slurm/train.sbatch does",
                slurm_end));
        }
        end = static_cast<double>(seconds);
    }
    if (limit_s > 0.0) end = std::min(end.value_or(started + limit_s), started + limit_s);
    return end;
}

StopController::StopController(const StopRequest& request, const config::Stop& keys,
                               std::optional<double> end)
    : request_(request), keys_(keys), end_(end) {}

bool StopController::end_is_near() const {
    if (!end_) return false;
    return *end_ - wall_seconds() < longest_step_s_ + 2 * longest_save_s_ + keys_.margin_s;
}

double StopController::vote(int rank) const {
    auto bits = request_.received();
    if (rank == 0 && end_is_near()) bits |= static_cast<std::uint8_t>(StopCause::kEndOfJob);
    return bits;
}

void StopController::decide(StopCause cause, int rank) {
    if (stopping_) return;
    stopping_ = true;
    const CauseName& named = *std::ranges::find(kCauseNames, cause, &CauseName::cause);
    reason_ = named.is_signal ? fmt::format("{} on rank {}", named.name, rank) : named.name;
    agreed_at_ = now_seconds();
    state_ = State::kAgreed;
}

bool StopController::judge(std::span<const double> votes) {
    if (state_ == State::kStarting) state_ = State::kRunning;
    for (std::size_t rank = 0; rank < votes.size(); ++rank) {
        const auto bits = static_cast<std::uint8_t>(votes[rank]);
        for (const CauseName& each : kCauseNames) {
            if ((bits & static_cast<std::uint8_t>(each.cause)) != 0)
                decide(each.cause, static_cast<int>(rank));
        }
    }
    return stopping_;
}

bool StopController::judge_now(const comm::Group& world) {
    const std::array mine{vote(world.rank())};
    std::vector<double> votes(static_cast<std::size_t>(world.size()));
    world.all_gather(mine, votes);
    return judge(votes);
}

void StopController::note_step(double seconds) {
    longest_step_s_ = std::max(longest_step_s_, seconds);
}

void StopController::note_save(double seconds) {
    longest_save_s_ = std::max(longest_save_s_, seconds);
}

StopController::Saving::Saving(StopController& stop) : stop_(stop) {
    stop_.turned_at_ = now_seconds();
    stop_.saving_ = true;
}

StopController::Saving::~Saving() {
    stop_.turned_at_ = now_seconds();
    stop_.saving_ = false;
}

std::optional<comm::Watchdog::Verdict> StopController::watch() const {
    using Verdict = comm::Watchdog::Verdict;
    const State state = state_;
    const auto asked = request_.received_at();
    if (state == State::kStopped || (!asked && state != State::kAgreed)) return std::nullopt;
    if (request_.insisted()) {
        return Verdict{
            "asked to stop a second time: ends at once, behind the last finished checkpoint",
            ExitCode::kRunError};
    }
    const double now = now_seconds();
    if (state == State::kAgreed || (state == State::kRunning && saving_)) {
        const double since =
            state == State::kAgreed ? agreed_at_.load() : std::max(*asked, turned_at_.load());
        if (now - since < keys_.save_s) return std::nullopt;
        return Verdict{fmt::format("asked to stop, and the checkpoint is not written after "
                                   "stop.save_s = {} s: ends behind the last finished one",
                                   keys_.save_s),
                       ExitCode::kCommunication};
    }
    if (state == State::kStarting || now - std::max(*asked, turned_at_.load()) < keys_.grace_s)
        return std::nullopt;
    return Verdict{fmt::format("asked to stop, and the ranks have not agreed on it after "
                               "stop.grace_s = {} s: ends behind the last finished checkpoint",
                               keys_.grace_s),
                   ExitCode::kCommunication};
}

}  // namespace fullshard::train
