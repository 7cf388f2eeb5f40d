// No allocation in a steady step.
#include "data/loader.h"
#include "data/prefetching_loader.h"
#include "data/synthetic_source.h"
#include "data/text_source.h"
#include "data/toy_source.h"
#include "support/allocation_counter.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace fullshard::data {
namespace {

/// Allocations of a few steps after a first one.
template <typename Load>
std::int64_t steady_allocations(Load load) {
    TokenBatch batch;
    const auto before = allocation_count();
    load(0, batch);
    EXPECT_GT(allocation_count(), before) << "the counter does not count";
    const auto steady = allocation_count();
    for (std::int64_t step = 1; step < 50; ++step) load(step, batch);
    return allocation_count() - steady;
}

void expect_no_steady_allocation(const std::shared_ptr<const TokenSource>& source) {
    const Windows windows(source, {0, source->size()}, 8, TargetRule::kNext);
    const TrainingLoader training(windows, {.micro_batch = 4, .micro_batches = 2}, 1, true);
    EXPECT_EQ(steady_allocations([&](std::int64_t step, TokenBatch& batch) {
                  training.load(step, 1, batch);
                  EXPECT_GT(training.valid_targets(step), 0);
              }),
              0);
    const ValidationLoader validation(windows, 4);
    EXPECT_EQ(steady_allocations(
                  [&](std::int64_t step, TokenBatch& batch) { validation.load(step, batch); }),
              0);
}

TEST(Allocation, ASteadyStepOnTextAllocatesNothing) {
    expect_no_steady_allocation(std::make_shared<TextSource>(
        "text", std::string(1003, 'x'), std::vector<TextSource::File>{{"text", 0}},
        std::vector<std::string>{}));
}

TEST(Allocation, ASteadyStepOnSyntheticTokensAllocatesNothing) {
    expect_no_steady_allocation(std::make_shared<SyntheticSource>(1, 100, 8, 50));
}

/// Three documents a window, a loss mask, and two sources that are mixed.
std::vector<TrainingSource> masked_documents() {
    auto source = toy_documents(std::vector<std::int64_t>(30, 3));
    source->loss_mask.assign(source->tokens.size(), 1);
    source->loss_mask[4] = 0;
    const Windows windows(source, {0, source->size()}, 9,
                          Cutting{.packing = Packing::kDocuments, .document_mask = true});
    return {{"a", windows, 1.0}, {"b", windows, 2.0}};
}

TEST(Allocation, ASteadyStepOnMaskedDocumentsAllocatesNothing) {
    const TrainingLoader loader(masked_documents(), {.micro_batch = 4, .micro_batches = 2}, 1,
                                true);
    std::vector<std::int64_t> by_source(2);
    EXPECT_EQ(steady_allocations([&](std::int64_t step, TokenBatch& batch) {
                  loader.load(step, 1, batch);
                  loader.add_valid_targets(step, by_source);
                  EXPECT_GT(loader.valid_targets(step), 0);
              }),
              0);
}

TEST(Allocation, AThreadThatReadsAheadAllocatesNothingOnceItsBuffersAreUsed) {
    const TrainingLoader loader(masked_documents(), {.micro_batch = 4, .micro_batches = 2}, 1,
                                true);
    PrefetchingLoader batches(loader, {0, 1, 2, 0, 200}, 3);
    for (std::int64_t step = 0; step < 10; ++step) batches.load(step, 1);
    const auto steady = allocation_count();
    for (std::int64_t step = 10; step < 200; ++step) batches.load(step, step % 2);
    EXPECT_EQ(allocation_count() - steady, 0);
}

}  // namespace
}  // namespace fullshard::data
