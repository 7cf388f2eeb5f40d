#include "comm/progress_thread.h"

#include "base/clock.h"
#include "base/error.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace fullshard::comm {
namespace {

using namespace std::chrono_literals;
using Computing = ProgressThread::Computing;

/// Whether `holds` comes true before long.
template <typename Condition>
bool soon(Condition&& holds) {
    const double deadline = now_seconds() + 10.0;
    while (!holds() && now_seconds() < deadline) std::this_thread::sleep_for(1ms);
    return holds();
}

TEST(ProgressThread, AdvancesOnlyWhileTheRankComputes) {
    std::atomic<int> calls = 0;
    ProgressThread thread([&] {
        ++calls;
        return true;
    });
    std::this_thread::sleep_for(5ms);
    EXPECT_EQ(calls, 0);
    for (int round = 0; round < 20; ++round) {
        const int before = calls;
        {
            const Computing computing(thread);
            EXPECT_TRUE(soon([&] { return calls > before + 2; }));
        }
        const int after = calls;
        std::this_thread::sleep_for(1ms);
        EXPECT_EQ(calls, after);
    }
}

TEST(ProgressThread, RestsWhenNothingIsLeft) {
    std::atomic<int> calls = 0;
    ProgressThread thread([&] { return ++calls % 3 != 0; });
    for (int round = 1; round <= 3; ++round) {
        const Computing computing(thread);
        EXPECT_TRUE(soon([&] { return calls == 3 * round; }));
        std::this_thread::sleep_for(5ms);
        EXPECT_EQ(calls, 3 * round);
    }
}

TEST(ProgressThread, TheEndWaitsForACallThatHasBegun) {
    std::atomic<bool> entered = false;
    bool left = false;  // not atomic: the end must show it
    ProgressThread thread([&] {
        entered = true;
        std::this_thread::sleep_for(20ms);
        left = true;
        return false;
    });
    {
        const Computing computing(thread);
        EXPECT_TRUE(soon([&] { return entered.load(); }));
    }
    EXPECT_TRUE(left);
}

TEST(ProgressThread, AnExceptionIsThrownWhereTheRankNextBeginsToCompute) {
    std::atomic<int> calls = 0;
    ProgressThread thread([&]() -> bool {
        if (++calls == 1) throw RunError("a message was lost");
        return false;
    });
    {
        const Computing computing(thread);
        EXPECT_TRUE(soon([&] { return calls == 1; }));
    }
    EXPECT_THROW(Computing{thread}, RunError);
    const Computing computing(thread);
    EXPECT_TRUE(soon([&] { return calls == 2; }));
}

TEST(ProgressThread, IsMadeAndEndedWithoutWork) {
    const ProgressThread thread([] { return false; });
    const Computing nobody;
}

}  // namespace
}  // namespace fullshard::comm
