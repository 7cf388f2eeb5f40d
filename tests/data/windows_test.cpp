#include "data/windows.h"

#include "base/error.h"
#include "data/counting_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace fullshard::data {
namespace {

using Tokens = std::vector<std::int64_t>;

struct Window {
    Tokens tokens, targets;
    std::int64_t valid = 0;
};

Window read(const Windows& windows, std::int64_t index) {
    const auto length = static_cast<std::size_t>(windows.sequence());
    Window window{Tokens(length, -99), Tokens(length, -99)};
    window.valid = windows.read(index, window.tokens, window.targets);
    return window;
}

TEST(Windows, NextTargetsRunAcrossTheWindowsEnd) {
    const Windows windows(counting(11), {0, 11}, 4, TargetRule::kNext);
    ASSERT_EQ(windows.count(), 3);
    EXPECT_EQ(read(windows, 0).tokens, (Tokens{0, 1, 2, 3}));
    EXPECT_EQ(read(windows, 0).targets, (Tokens{1, 2, 3, 4}));
    EXPECT_EQ(read(windows, 1).targets, (Tokens{5, 6, 7, 8}));
    EXPECT_EQ(read(windows, 2).tokens, (Tokens{8, 9, 10, kPaddingToken}));
    EXPECT_EQ(read(windows, 2).targets, (Tokens{9, 10, kIgnoredTarget, kIgnoredTarget}));
    EXPECT_EQ(read(windows, 2).valid, 2);
}

TEST(Windows, NextTargetsWithoutRemainderEndWithAnIgnoredOne) {
    const Windows windows(counting(8), {0, 8}, 4, TargetRule::kNext);
    ASSERT_EQ(windows.count(), 2);
    EXPECT_EQ(read(windows, 1).tokens, (Tokens{4, 5, 6, 7}));
    EXPECT_EQ(read(windows, 1).targets, (Tokens{5, 6, 7, kIgnoredTarget}));
}

TEST(Windows, ALastTokenAloneIsATargetOnly) {
    const Windows windows(counting(9), {0, 9}, 4, TargetRule::kNext);
    ASSERT_EQ(windows.count(), 2);
    EXPECT_EQ(read(windows, 1).targets, (Tokens{5, 6, 7, 8}));
}

TEST(Windows, RolledTargetsStayInsideTheWindow) {
    const Windows windows(counting(11), {0, 11}, 4, TargetRule::kRolled);
    ASSERT_EQ(windows.count(), 3);
    EXPECT_EQ(read(windows, 0).targets, (Tokens{1, 2, 3, 0}));
    EXPECT_EQ(read(windows, 1).targets, (Tokens{5, 6, 7, 4}));
    EXPECT_EQ(read(windows, 2).tokens, (Tokens{8, 9, 10, kPaddingToken}));
    EXPECT_EQ(read(windows, 2).targets, (Tokens{9, 10, 8, kIgnoredTarget}));
    EXPECT_EQ(read(windows, 2).valid, 3);
}

TEST(Windows, NoTargetComesFromOutsideTheRange) {
    const Windows windows(counting(100), {10, 8}, 4, TargetRule::kNext);
    ASSERT_EQ(windows.count(), 2);
    EXPECT_EQ(read(windows, 0).tokens, (Tokens{10, 11, 12, 13}));
    EXPECT_EQ(read(windows, 1).targets, (Tokens{15, 16, 17, kIgnoredTarget}));
}

TEST(Windows, EveryTokenIsServedExactlyOnce) {
    for (const auto rule : {TargetRule::kNext, TargetRule::kRolled}) {
        const bool next = rule == TargetRule::kNext;
        for (std::int64_t n = next ? 2 : 1; n <= 40; ++n) {
            for (std::int64_t sequence = 1; sequence <= 9; ++sequence) {
                SCOPED_TRACE(testing::Message() << n << " tokens, sequence " << sequence);
                const Windows windows(counting(n), {0, n}, sequence, rule);
                std::map<std::int64_t, int> inputs, targets;
                for (std::int64_t i = 0; i < windows.count(); ++i) {
                    const auto window = read(windows, i);
                    std::int64_t valid = 0;
                    for (std::size_t t = 0; t < window.tokens.size(); ++t) {
                        if (window.targets[t] == kIgnoredTarget) continue;
                        ++valid;
                        ++inputs[window.tokens[t]];
                        ++targets[window.targets[t]];
                    }
                    EXPECT_GE(valid, 1);
                    EXPECT_EQ(window.valid, valid);
                    EXPECT_EQ(windows.valid_targets(i), valid);
                }
                for (std::int64_t token = 0; token < n; ++token) {
                    EXPECT_EQ(inputs[token], next && token == n - 1 ? 0 : 1);
                    EXPECT_EQ(targets[token], next && token == 0 ? 0 : 1);
                }
            }
        }
    }
}

TEST(Windows, PositionsBeyondTwoToTheForty) {
    const std::int64_t size = (std::int64_t{1} << 43) + 3;
    const Windows windows(counting(size), {0, size}, 8, TargetRule::kNext);
    ASSERT_EQ(windows.count(), (std::int64_t{1} << 40) + 1);
    const auto last = read(windows, windows.count() - 1);
    EXPECT_EQ(last.tokens, (Tokens{size - 3, size - 2, size - 1, 0, 0, 0, 0, 0}));
    EXPECT_EQ(last.valid, 2);
}

TEST(Windows, WrongArguments) {
    EXPECT_THROW(Windows(counting(5), {0, 5}, 0, TargetRule::kNext), UsageError);
    EXPECT_THROW(Windows(counting(5), {0, 1}, 4, TargetRule::kNext), DataError);
    EXPECT_THROW(Windows(counting(5), {5, 0}, 4, TargetRule::kRolled), DataError);
    EXPECT_THROW(Windows(counting(5), {1, 5}, 4, TargetRule::kNext), LogicError);
    const Windows windows(counting(5), {0, 5}, 4, TargetRule::kRolled);
    EXPECT_THROW(windows.valid_targets(2), LogicError);
    EXPECT_THROW(windows.valid_targets(-1), LogicError);
    Tokens shorter(3), right(4);
    EXPECT_THROW(windows.read(0, shorter, right), LogicError);
    EXPECT_THROW(windows.read(0, right, shorter), LogicError);
}

TEST(Split, HoldsOutTheLastWindowsAndKeepsTheRemainder) {
    const auto parts = split(CountingSource(1003), 10, 0.1);
    EXPECT_EQ(parts.training, (TokenRange{0, 900}));
    EXPECT_EQ(parts.validation, (TokenRange{900, 103}));
}

TEST(Split, RoundsToWholeWindowsButKeepsOneOnEachSide) {
    EXPECT_EQ(split(CountingSource(100), 10, 0.26).validation, (TokenRange{70, 30}));
    EXPECT_EQ(split(CountingSource(100), 10, 1e-9).validation, (TokenRange{90, 10}));
    EXPECT_EQ(split(CountingSource(100), 10, 0.999).training, (TokenRange{0, 10}));
    EXPECT_EQ(split(CountingSource(20), 10, 0.5).training, (TokenRange{0, 10}));
}

TEST(Split, WithoutValidationEverythingIsTraining) {
    const auto parts = split(CountingSource(17), 10, 0.0);
    EXPECT_EQ(parts.training, (TokenRange{0, 17}));
    EXPECT_EQ(parts.validation.count, 0);
}

TEST(Split, TooLittleDataIsADataErrorWithSourceAndSizes) {
    EXPECT_THROW(split(CountingSource(9), 10, 0.0), DataError);
    EXPECT_NO_THROW(split(CountingSource(10), 10, 0.0));
    try {
        split(CountingSource(19), 10, 0.1);
        FAIL() << "no error";
    } catch (const DataError& error) {
        const std::string message = error.what();
        for (const char* part : {"counting source", "19 tokens", "data.sequence = 10"})
            EXPECT_NE(message.find(part), std::string::npos) << part << " not in " << message;
    }
}

TEST(Split, FractionOutsideItsRangeIsAUsageError) {
    for (const double fraction : {-0.1, 1.0, std::nan("")})
        EXPECT_THROW(split(CountingSource(100), 10, fraction), UsageError) << fraction;
}

}  // namespace
}  // namespace fullshard::data
