#include "base/error.h"
#include "train/stop_controller.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>

namespace fullshard::train {
namespace {

double wall_seconds() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

void wait_s(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// NVIDIA/nccl#704: a library caught USR1 and the notice of preemption was lost.
TEST(StopRequest, TakesItsHandlersBack) {
    StopRequest request;
    EXPECT_FALSE(request.reclaim());
    signal(SIGUSR1, SIG_IGN);
    EXPECT_TRUE(request.reclaim());
    raise(SIGUSR1);
    EXPECT_EQ(request.received(), static_cast<std::uint8_t>(StopCause::kUsr1));
}

TEST(StopRequest, EverySignalLeavesItsMark) {
    for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM, SIGINT}) {
        const StopRequest request;
        EXPECT_EQ(request.received(), 0);
        EXPECT_FALSE(request.received_at());
        raise(signal);
        EXPECT_NE(request.received(), 0);
        EXPECT_TRUE(request.received_at());
        EXPECT_FALSE(request.insisted());
    }
}

TEST(StopRequest, RestoresWhatWasThere) {
    struct sigaction before {};
    sigaction(SIGTERM, nullptr, &before);
    { const StopRequest request; }
    struct sigaction after {};
    sigaction(SIGTERM, nullptr, &after);
    EXPECT_EQ(before.sa_handler, after.sa_handler);
}

// Slurm sends TERM to the steps and then to the job, mpirun hands it on: one wish.
TEST(StopRequest, ARepeatedSignalIsTheSameWish) {
    const StopRequest request;
    raise(SIGTERM);
    raise(SIGTERM);
    EXPECT_FALSE(request.insisted());
    wait_s(StopRequest::kRepeatSeconds + 0.1);
    raise(SIGTERM);
    EXPECT_TRUE(request.insisted());
}

TEST(EndOfJob, IsTheEarlierOne) {
    EXPECT_EQ(end_of_job("", 0.0, 100.0), std::nullopt);
    EXPECT_EQ(end_of_job("5000", 0.0, 100.0), 5000.0);
    EXPECT_EQ(end_of_job("", 8.0, 100.0), 108.0);
    EXPECT_EQ(end_of_job("5000", 8.0, 100.0), 108.0);
    EXPECT_EQ(end_of_job("105", 8.0, 100.0), 105.0);
    for (const char* text : {"soon", "12x", "-5", "0"})
        EXPECT_THROW(end_of_job(text, 0.0, 100.0), UsageError) << text;
}

TEST(StopController, OneRankIsEnough) {
    const StopRequest nobody;
    StopController stop(nobody, {}, std::nullopt);
    EXPECT_FALSE(stop.judge(std::array{0.0, 0.0, 0.0}));
    EXPECT_TRUE(stop.judge(std::array{0.0, 0.0, 2.0}));
    EXPECT_EQ(stop.reason(), "USR2 on rank 2");
    EXPECT_TRUE(stop.judge(std::array{0.0, 1.0, 0.0})) << "once decided it stays";
    EXPECT_EQ(stop.reason(), "USR2 on rank 2");
}

TEST(StopController, VotesWhatItsProcessWasAsked) {
    const StopRequest request;
    const StopController stop(request, {}, std::nullopt);
    EXPECT_EQ(stop.vote(1), 0.0);
    raise(SIGTERM);
    EXPECT_EQ(stop.vote(1), 4.0);
}

TEST(StopController, LeavesTimeForAStepAndTwoCheckpoints) {
    const StopRequest nobody;
    const auto votes = [&](double left, double step, double save) {
        StopController stop(nobody, {.margin_s = 60.0}, wall_seconds() + left);
        stop.note_step(step);
        stop.note_step(step / 2);  // the longest counts
        stop.note_save(save);
        EXPECT_EQ(stop.vote(1), 0.0) << "the clock is rank 0's";
        return stop.vote(0) != 0.0;
    };
    EXPECT_FALSE(votes(75.0, 10.0, 0.0));
    EXPECT_TRUE(votes(65.0, 10.0, 0.0));
    EXPECT_FALSE(votes(105.0, 10.0, 15.0));
    EXPECT_TRUE(votes(95.0, 10.0, 15.0));
}

std::string verdict_of(const StopController& stop) {
    const auto verdict = stop.watch();
    return verdict ? verdict->cause : "";
}

TEST(StopController, EndsAtOnceWithoutAgreement) {
    const StopRequest request;
    StopController stop(request, {.grace_s = 0.2}, std::nullopt);
    stop.judge(std::array{0.0});
    EXPECT_EQ(verdict_of(stop), "");
    raise(SIGTERM);
    EXPECT_EQ(verdict_of(stop), "");
    wait_s(0.3);
    EXPECT_NE(verdict_of(stop).find("stop.grace_s = 0.2"), std::string::npos);
    stop.judge(std::array{4.0});
    EXPECT_EQ(verdict_of(stop), "") << "agreed: from here on stop.save_s counts";
}

TEST(StopController, AStartMayTakeLongerThanTheGrace) {
    const StopRequest request;
    const StopController stop(request, {.grace_s = 0.1}, std::nullopt);
    raise(SIGTERM);
    wait_s(0.2);
    EXPECT_EQ(verdict_of(stop), "");
}

TEST(StopController, ASaveMayTakeLongerThanTheGrace) {
    const StopRequest request;
    StopController stop(request, {.grace_s = 0.2, .save_s = 0.6}, std::nullopt);
    stop.judge(std::array{0.0});
    raise(SIGUSR1);
    {
        const StopController::Saving saving(stop);
        wait_s(0.4);
        EXPECT_EQ(verdict_of(stop), "");
        wait_s(0.4);
        EXPECT_NE(verdict_of(stop).find("stop.save_s = 0.6"), std::string::npos);
    }
    EXPECT_EQ(verdict_of(stop), "") << "from here on the grace counts anew";
    wait_s(0.3);
    EXPECT_NE(verdict_of(stop).find("stop.grace_s = 0.2"), std::string::npos);
}

TEST(StopController, EndsAtOnceWhenTheCheckpointTakesTooLong) {
    const StopRequest request;
    StopController stop(request, {.save_s = 0.2}, std::nullopt);
    stop.judge(std::array{1.0});
    wait_s(0.3);
    EXPECT_NE(verdict_of(stop).find("stop.save_s = 0.2"), std::string::npos);
    EXPECT_EQ(stop.watch()->code, ExitCode::kCommunication);
    stop.stopped();
    EXPECT_EQ(verdict_of(stop), "");
}

TEST(StopController, EndsAtOnceOnASecondSignal) {
    const StopRequest request;
    StopController stop(request, {}, std::nullopt);
    raise(SIGUSR1);
    stop.judge(std::array{1.0});
    wait_s(StopRequest::kRepeatSeconds + 0.1);
    raise(SIGTERM);
    EXPECT_NE(verdict_of(stop).find("second time"), std::string::npos);
    EXPECT_EQ(stop.watch()->code, ExitCode::kRunError);
}

}  // namespace
}  // namespace fullshard::train
