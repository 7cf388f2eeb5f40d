#include "data/prefetching_loader.h"

#include "base/error.h"
#include "data/counting_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace fullshard::data {
namespace {

TrainingLoader loader_of(std::shared_ptr<const TokenSource> source) {
    const TokenRange all{0, source->size()};
    return {Windows(std::move(source), all, 4, TargetRule::kNext), {2, 6}, 9, true};
}

void expect_equal(const TokenBatch& batch, const TokenBatch& expected) {
    EXPECT_EQ(batch.tokens, expected.tokens);
    EXPECT_EQ(batch.targets, expected.targets);
    EXPECT_EQ(batch.valid_targets, expected.valid_targets);
}

TEST(PrefetchingLoader, HandsOverWhatTheLoaderReadsForAnyDistance) {
    const TrainingLoader loader = loader_of(counting(103));
    for (const std::int64_t ahead : {0, 1, 2, 3, 7, 100}) {
        for (std::int64_t rank = 0; rank < 3; ++rank) {
            PrefetchingLoader batches(loader, {rank, 3, 2, 5, 25}, ahead);
            TokenBatch expected;
            for (std::int64_t step = 5; step < 25; ++step) {
                for (std::int64_t a = 0; a < 2; ++a) {
                    loader.load(step, micro_batch_index(a, rank, 3), expected);
                    expect_equal(batches.load(step, a), expected);
                }
            }
        }
    }
}

TEST(PrefetchingLoader, MicroBatchesMayBePassedOver) {
    const TrainingLoader loader = loader_of(counting(103));
    for (const std::int64_t ahead : {0, 1, 4}) {
        PrefetchingLoader batches(loader, {1, 2, 3, 0, 400}, ahead);
        TokenBatch expected;
        std::int64_t number = 0;
        for (std::int64_t jump = 1; number < 3 * 400; number += jump, jump = jump % 11 + 1) {
            loader.load(number / 3, micro_batch_index(number % 3, 1, 2), expected);
            expect_equal(batches.load(number / 3, number % 3), expected);
        }
    }
}

/// Counts its reads.
class WatchedSource final : public TokenSource {
  public:
    std::int64_t size() const override { return 1001; }
    std::int64_t vocab_size() const override { return 1; }
    void read(std::int64_t, std::span<std::int64_t> out) const override {
        std::ranges::fill(out, 0);
        ++reads;
    }
    std::string name() const override { return "watched source"; }
    std::string locate(std::int64_t) const override { return "somewhere"; }

    mutable std::atomic<std::int64_t> reads = 0;
};

TEST(PrefetchingLoader, WhatIsPassedOverIsNotRead) {
    const auto source = std::make_shared<WatchedSource>();
    const TrainingLoader loader(Windows(source, {0, 1001}, 4, TargetRule::kNext), {1, 1}, 1, false);
    {
        PrefetchingLoader batches(loader, {0, 1, 1, 0, 201}, 2);
        batches.load(0, 0);
        batches.load(200, 0);
    }
    // Micro-batches 0 and 200, what was ahead of the first, and one that was being read: two reads
    // each, for inputs and for the last target.
    EXPECT_LE(source->reads, 2 * (2 + 2 + 1));
}

TEST(PrefetchingLoader, ABatchStaysWhileTheThreadReadsOn) {
    const TrainingLoader loader = loader_of(counting(103));
    PrefetchingLoader batches(loader, {0, 1, 6, 0, 10}, 1);
    const TokenBatch& held = batches.load(0, 0);
    const TokenBatch copy = held;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    expect_equal(held, copy);
}

/// Fails where it reads token `at`.
class FailingSource final : public TokenSource {
  public:
    explicit FailingSource(std::int64_t at) : at_(at) {}
    std::int64_t size() const override { return 1000; }
    std::int64_t vocab_size() const override { return 1000; }
    void read(std::int64_t first, std::span<std::int64_t> out) const override {
        for (std::int64_t& token : out) {
            if (first == at_) throw DataError("token at_ is damaged");
            token = first++;
        }
    }
    std::string name() const override { return "failing source"; }
    std::string locate(std::int64_t) const override { return "here"; }

  private:
    std::int64_t at_;
};

TEST(PrefetchingLoader, ErrorsArriveWhereTheBatchIsAskedFor) {
    const TrainingLoader loader(
        Windows(std::make_shared<FailingSource>(403), {0, 1000}, 4, TargetRule::kNext), {1, 1}, 1,
        false);
    for (const std::int64_t ahead : {0, 1, 5, 200}) {
        PrefetchingLoader batches(loader, {0, 1, 1, 0, 300}, ahead);
        for (std::int64_t step = 0; step < 100; ++step)
            EXPECT_EQ(batches.load(step, 0).tokens.front(), 4 * step);
        EXPECT_THROW(batches.load(100, 0), DataError) << ahead;
        EXPECT_EQ(batches.load(101, 0).tokens.front(), 404);
    }
}

TEST(PrefetchingLoader, EndsWhileBatchesAreLeftOrNoneWasAskedFor) {
    const TrainingLoader loader = loader_of(counting(103));
    for (int repeat = 0; repeat < 200; ++repeat) {
        PrefetchingLoader batches(loader, {0, 1, 6, 0, 1000}, 3);
        if (repeat % 2 == 0) batches.load(0, repeat % 6);
    }
    PrefetchingLoader nothing(loader, {0, 1, 6, 10, 10}, 3);
    EXPECT_THROW(nothing.load(10, 0), LogicError);
}

TEST(PrefetchingLoader, RequestsOutsideTheShareOrBackwards) {
    const TrainingLoader loader = loader_of(counting(103));
    for (const std::int64_t ahead : {0, 2}) {
        PrefetchingLoader batches(loader, {0, 2, 3, 4, 8}, ahead);
        EXPECT_THROW(batches.load(3, 0), LogicError);
        EXPECT_THROW(batches.load(8, 0), LogicError);
        EXPECT_THROW(batches.load(4, 3), LogicError);
        batches.load(5, 1);
        EXPECT_THROW(batches.load(5, 1), LogicError);
        EXPECT_THROW(batches.load(5, 0), LogicError);
        EXPECT_NO_THROW(batches.load(7, 2));
    }
    EXPECT_THROW(PrefetchingLoader(loader, {2, 2, 3, 0, 8}, 1), LogicError);
    EXPECT_THROW(PrefetchingLoader(loader, {0, 1, 6, 0, 8}, -1), LogicError);
}

}  // namespace
}  // namespace fullshard::data
