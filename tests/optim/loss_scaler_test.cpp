#include "optim/loss_scaler.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string_view>
#include <vector>

namespace fullshard::optim {
namespace {

struct Entry {
    double scale;
    std::int64_t hysteresis_left;
    friend bool operator==(const Entry&, const Entry&) = default;
};

void PrintTo(const Entry& entry, std::ostream* out) {
    *out << entry.scale << '/' << entry.hysteresis_left;
}

/// Scale and hysteresis after each step; an X is a step that overflowed.
std::vector<Entry> trace(LossScaler& scaler, std::string_view steps) {
    std::vector<Entry> entries;
    for (const char step : steps) {
        scaler.update(step == 'X');
        entries.push_back({scaler.scale(), scaler.state().hysteresis_left});
    }
    return entries;
}

TEST(LossScaler, StartsAsTheDefaultsOfDeepSpeed) {
    const LossScaler scaler({});
    EXPECT_EQ(scaler.scale(), 65536);
    EXPECT_EQ(scaler.state(), (LossScalerState{65536, 0, 2}));
}

// What the rules of DeepSpeed's DynamicLossScaler give, worked out by hand from its source.
TEST(LossScaler, FollowsDeepSpeedWithHysteresis) {
    LossScaler scaler({.initial = 256, .window = 2, .hysteresis = 2});
    const std::vector<Entry> expected{{256, 1}, {128, 1}, {64, 1}, {64, 1}, {64, 1}, {32, 1},
                                      {32, 1},  {32, 1},  {64, 2}, {64, 2}, {64, 1}};
    EXPECT_EQ(trace(scaler, "XXX..X....X"), expected);
}

TEST(LossScaler, FollowsDeepSpeedWithoutHysteresis) {
    LossScaler scaler({.initial = 16, .window = 3, .hysteresis = 1});
    const std::vector<Entry> expected{{16, 1}, {16, 1}, {16, 1}, {32, 1}, {16, 1},
                                      {16, 1}, {16, 1}, {16, 1}, {8, 1}};
    EXPECT_EQ(trace(scaler, "....X...X"), expected);
}

// Doublings at good steps w + 1, 2w + 1, 3w + 1, ...
TEST(LossScaler, DoublesOnceAWindow) {
    LossScaler scaler({.initial = 1, .window = 1000});
    for (std::int64_t step = 1; step <= 3500; ++step) {
        scaler.update(false);
        EXPECT_EQ(scaler.scale(), static_cast<double>(1 << ((step - 1) / 1000))) << step;
    }
    EXPECT_EQ(scaler.state().good_steps, 3500);
}

// H - 1 overflows are absorbed, then each one halves.
TEST(LossScaler, HysteresisDelaysTheFirstHalvingOnly) {
    for (const std::int64_t hysteresis : {1, 2, 5}) {
        LossScaler scaler({.initial = 1024, .hysteresis = hysteresis});
        for (std::int64_t overflow = 1; overflow <= 9; ++overflow) {
            scaler.update(true);
            const std::int64_t halvings = std::max<std::int64_t>(0, overflow - hysteresis + 1);
            EXPECT_EQ(scaler.scale(), 1024.0 / static_cast<double>(1 << halvings));
        }
    }
}

TEST(LossScaler, OverflowAtTheMinimumIsAnErrorOnceHysteresisIsUsedUp) {
    LossScaler scaler({.initial = 2, .window = 1000, .hysteresis = 2, .minimum = 1});
    EXPECT_EQ(trace(scaler, "XX"), (std::vector<Entry>{{2, 1}, {1, 1}}));
    const LossScalerState before = scaler.state();
    try {
        scaler.update(true);
        FAIL() << "no error";
    } catch (const RunError& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::kDiverged);
        EXPECT_NE(std::string_view(error.what()).find("minimum of 1 "), std::string_view::npos)
            << error.what();
    }
    EXPECT_EQ(scaler.state(), before);

    LossScaler patient({.initial = 4, .hysteresis = 3, .minimum = 4});
    patient.update(true);
    patient.update(true);
    EXPECT_EQ(patient.scale(), 4);
    EXPECT_THROW(patient.update(true), RunError);
}

TEST(LossScaler, FixedScaleNeverMoves) {
    LossScaler scaler({.window = 1, .hysteresis = 1, .fixed = 128});
    for (const Entry& entry : trace(scaler, "....XXXXXXXXXXX....")) EXPECT_EQ(entry.scale, 128);
    EXPECT_EQ(scaler.state().good_steps, 4);
}

TEST(LossScaler, RestoredStateGoesOnAlike) {
    const LossScalerOptions options{.initial = 256, .window = 3, .hysteresis = 2};
    const std::string_view steps = "..X....X..X....X.....";
    for (std::size_t cut = 0; cut <= steps.size(); ++cut) {
        LossScaler whole(options), first(options), second(options);
        trace(whole, steps);
        trace(first, steps.substr(0, cut));
        second.restore(first.state());
        trace(second, steps.substr(cut));
        EXPECT_EQ(second.state(), whole.state()) << cut;
    }
}

TEST(LossScaler, RestoreKeepsWithinChangedOptions) {
    const LossScalerState state{.scale = 2, .good_steps = 7, .hysteresis_left = 5};
    LossScaler dynamic({.initial = 64, .hysteresis = 3, .minimum = 8});
    dynamic.restore(state);
    EXPECT_EQ(dynamic.state(), (LossScalerState{8, 7, 3}));
    LossScaler fixed({.fixed = 32});
    fixed.restore(state);
    EXPECT_EQ(fixed.scale(), 32);
}

TEST(LossScaler, RefusesImpossibleOptionsAndStates) {
    const auto with = [](const LossScalerOptions& options) { return LossScaler(options); };
    EXPECT_THROW(with({.initial = 1000}), LogicError);
    EXPECT_THROW(with({.initial = -2}), LogicError);
    EXPECT_THROW(with({.minimum = 0}), LogicError);
    EXPECT_THROW(with({.fixed = 3}), LogicError);
    EXPECT_THROW(with({.initial = 2, .minimum = 4}), LogicError);
    EXPECT_THROW(with({.window = 0}), LogicError);
    EXPECT_THROW(with({.hysteresis = 0}), LogicError);
    EXPECT_NO_THROW(with({.initial = 0.5, .minimum = 0.25}));

    LossScaler scaler({});
    EXPECT_THROW(scaler.restore({.scale = 3}), LogicError);
    EXPECT_THROW(scaler.restore({.scale = 2, .good_steps = -1}), LogicError);
    EXPECT_THROW(scaler.restore({.scale = 2, .hysteresis_left = 0}), LogicError);
}

}  // namespace
}  // namespace fullshard::optim
