#include "data/loader.h"

#include "base/error.h"
#include "data/counting_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace fullshard::data {
namespace {

using Tokens = std::vector<std::int64_t>;

/// `count` windows of two tokens: window i starts with token 2 i.
Windows pairs(std::int64_t count) {
    return Windows(counting(2 * count), {0, 2 * count}, 2, TargetRule::kRolled);
}

/// The windows of `pairs` in a batch, row by row; padding rows are left out.
Tokens windows_in(const TokenBatch& batch) {
    Tokens windows;
    for (std::int64_t row = 0; row < batch.batch; ++row) {
        const auto at = static_cast<std::size_t>(row * batch.sequence);
        if (batch.targets.at(at) != kIgnoredTarget) windows.push_back(batch.tokens.at(at) / 2);
    }
    return windows;
}

void append(Tokens& to, const Tokens& from) {
    to.insert(to.end(), from.begin(), from.end());
}

/// What `world_size` ranks read in one step of A accumulations, ordered by micro-batch number.
Tokens step_of_ranks(const TrainingLoader& loader, std::int64_t step, std::int64_t accumulation,
                     std::int64_t world_size) {
    std::map<std::int64_t, Tokens> by_number;
    for (std::int64_t rank = 0; rank < world_size; ++rank) {
        TokenBatch batch;
        for (std::int64_t a = 0; a < accumulation; ++a) {
            const auto g = micro_batch_index(a, rank, world_size);
            loader.load(step, g, batch);
            EXPECT_TRUE(by_number.emplace(g, windows_in(batch)).second);
        }
    }
    Tokens all;
    for (const auto& [g, windows] : by_number) append(all, windows);
    return all;
}

TEST(TrainingLoader, RanksTogetherServeEveryWindowOnceAnEpoch) {
    for (std::int64_t n = 1; n <= 40; ++n) {
        for (std::int64_t world = 1; world <= 5; ++world) {
            const std::int64_t accumulation = 2, rows = 3, epochs = 3;
            const std::int64_t per_step = world * accumulation * rows;
            const TrainingLoader loader(pairs(n), {rows, world * accumulation}, 11, true);
            Tokens served;
            for (std::int64_t step = 0; step * per_step < epochs * n; ++step)
                append(served, step_of_ranks(loader, step, accumulation, world));
            ASSERT_GE(std::ssize(served), epochs * n);
            for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
                Tokens part(served.begin() + epoch * n, served.begin() + (epoch + 1) * n);
                std::ranges::sort(part);
                for (std::int64_t i = 0; i < n; ++i)
                    ASSERT_EQ(part[static_cast<std::size_t>(i)], i)
                        << "n " << n << " world " << world << " epoch " << epoch;
            }
        }
    }
}

TEST(TrainingLoader, AStepDoesNotDependOnHowItIsSharedOut) {
    const TrainingLoader loader(pairs(37), {2, 12}, 11, true);
    for (std::int64_t step = 0; step < 5; ++step) {
        const auto alone = step_of_ranks(loader, step, 12, 1);
        for (const std::int64_t world : {2, 3, 4, 6, 12})
            EXPECT_EQ(step_of_ranks(loader, step, 12 / world, world), alone) << world;
    }
}

TEST(TrainingLoader, MicroBatchSizeDoesNotChangeTheOrderOfSamples) {
    const TrainingLoader coarse(pairs(37), {4, 1}, 11, true);
    const TrainingLoader fine(pairs(37), {1, 4}, 11, true);
    for (std::int64_t step = 0; step < 20; ++step)
        EXPECT_EQ(step_of_ranks(fine, step, 4, 1), step_of_ranks(coarse, step, 1, 1));
}

TEST(TrainingLoader, WithoutShuffleBatchesRunAcrossTheEndOfAnEpoch) {
    const TrainingLoader loader(pairs(5), {2, 2}, 11, false);
    TokenBatch batch;
    loader.load(1, 0, batch);
    EXPECT_EQ(batch.tokens, (Tokens{8, 9, 0, 1}));
    EXPECT_EQ(batch.targets, (Tokens{9, 8, 1, 0}));
    EXPECT_EQ(batch.batch, 2);
    EXPECT_EQ(batch.sequence, 2);
    EXPECT_EQ(batch.valid_targets, 4);
    EXPECT_DOUBLE_EQ(loader.steps_per_epoch(), 1.25);
}

TEST(TrainingLoader, ValidTargetsOfAStepAreTheSumOverItsMicroBatches) {
    // 14 tokens in windows of 4 under kNext: 4, 4, 4 and 1 valid targets.
    const TrainingLoader loader(Windows(counting(14), {0, 14}, 4, TargetRule::kNext), {1, 3}, 2,
                                true);
    std::int64_t total = 0;
    TokenBatch batch;
    for (std::int64_t step = 0; step < 4; ++step) {
        std::int64_t in_step = 0;
        for (std::int64_t g = 0; g < 3; ++g) {
            loader.load(step, g, batch);
            EXPECT_EQ(batch.valid_targets,
                      std::ranges::count_if(batch.targets, [](auto t) { return t >= 0; }));
            in_step += batch.valid_targets;
        }
        EXPECT_EQ(loader.valid_targets(step), in_step);
        total += in_step;
    }
    EXPECT_EQ(total, 3 * 13);  // twelve samples are three epochs
}

TEST(TrainingLoader, StepsBeyondTwoToTheForty) {
    const TrainingLoader loader(pairs(1000), {3, 7}, 1, false);
    const std::int64_t step = std::int64_t{1} << 40;
    TokenBatch batch;
    loader.load(step, 6, batch);
    // 2^40 = 1 099 511 627 776, which is 776 modulo 1000.
    const std::int64_t first = (776 * 21 + 18) % 1000;
    EXPECT_EQ(windows_in(batch), (Tokens{first, first + 1, first + 2}));
}

TEST(TrainingLoader, WrongArguments) {
    EXPECT_THROW(TrainingLoader(pairs(5), {0, 1}, 1, true), UsageError);
    EXPECT_THROW(TrainingLoader(pairs(5), {1, 0}, 1, true), UsageError);
    const TrainingLoader loader(pairs(5), {1, 2}, 1, true);
    TokenBatch batch;
    EXPECT_THROW(loader.load(0, 2, batch), LogicError);
    EXPECT_THROW(loader.load(0, -1, batch), LogicError);
    EXPECT_THROW(loader.load(-1, 0, batch), LogicError);
    EXPECT_THROW(loader.valid_targets(-1), LogicError);
}

TEST(ValidationLoader, RanksTogetherServeEveryWindowOnce) {
    for (std::int64_t n = 1; n <= 40; ++n) {
        for (std::int64_t world = 1; world <= 5; ++world) {
            for (const std::int64_t rows : {1, 3, 4}) {
                const ValidationLoader loader(pairs(n), rows);
                Tokens served;
                std::int64_t valid = 0;
                TokenBatch batch;
                for (std::int64_t rank = 0; rank < world; ++rank) {
                    for (std::int64_t a = 0; a < loader.rounds(world); ++a) {
                        loader.load(micro_batch_index(a, rank, world), batch);
                        ASSERT_EQ(std::ssize(batch.tokens), rows * 2);
                        append(served, windows_in(batch));
                        valid += batch.valid_targets;
                    }
                }
                std::ranges::sort(served);
                ASSERT_EQ(std::ssize(served), n);
                for (std::int64_t i = 0; i < n; ++i)
                    ASSERT_EQ(served[static_cast<std::size_t>(i)], i);
                EXPECT_EQ(valid, 2 * n);
            }
        }
    }
}

TEST(ValidationLoader, TheLastBatchIsPaddedAndLaterOnesAreIgnored) {
    const ValidationLoader loader(pairs(3), 2);
    EXPECT_EQ(loader.batches(), 2);
    EXPECT_EQ(loader.rounds(1), 2);
    EXPECT_EQ(loader.rounds(2), 1);
    EXPECT_EQ(loader.rounds(5), 1);
    TokenBatch batch;
    loader.load(0, batch);
    EXPECT_EQ(batch.tokens, (Tokens{0, 1, 2, 3}));
    loader.load(1, batch);
    EXPECT_EQ(batch.tokens, (Tokens{4, 5, kPaddingToken, kPaddingToken}));
    EXPECT_EQ(batch.targets, (Tokens{5, 4, kIgnoredTarget, kIgnoredTarget}));
    EXPECT_EQ(batch.valid_targets, 2);
    loader.load(4, batch);
    EXPECT_EQ(batch.tokens, Tokens(4, kPaddingToken));
    EXPECT_EQ(batch.targets, Tokens(4, kIgnoredTarget));
    EXPECT_EQ(batch.valid_targets, 0);
}

TEST(ValidationLoader, WrongArguments) {
    EXPECT_THROW(ValidationLoader(pairs(3), 0), UsageError);
    TokenBatch batch;
    EXPECT_THROW(ValidationLoader(pairs(3), 1).load(-1, batch), LogicError);
    EXPECT_THROW(ValidationLoader(pairs(3), 1).rounds(0), LogicError);
}

}  // namespace
}  // namespace fullshard::data
