#include "config/batch.h"

#include "support.h"

#include <gtest/gtest.h>

namespace fullshard::config {
namespace {

Train train(std::int64_t micro_batch, std::int64_t grad_accum_steps, std::int64_t global_batch) {
    return {.micro_batch = micro_batch,
            .grad_accum_steps = grad_accum_steps,
            .global_batch = global_batch};
}

TEST(ResolveBatch, DerivesWhatIsMissing) {
    EXPECT_EQ(resolve_batch(train(0, 0, 0), 3), (Batch{4, 1, 12}));
    EXPECT_EQ(resolve_batch(train(2, 0, 0), 3), (Batch{2, 1, 6}));
    EXPECT_EQ(resolve_batch(train(0, 5, 0), 3), (Batch{4, 5, 60}));
    EXPECT_EQ(resolve_batch(train(2, 5, 0), 3), (Batch{2, 5, 30}));
    EXPECT_EQ(resolve_batch(train(0, 0, 24), 3), (Batch{4, 2, 24}));
    EXPECT_EQ(resolve_batch(train(2, 0, 24), 3), (Batch{2, 4, 24}));
    EXPECT_EQ(resolve_batch(train(0, 1, 24), 3), (Batch{8, 1, 24}));
    EXPECT_EQ(resolve_batch(train(2, 4, 24), 3), (Batch{2, 4, 24}));
}

std::string batch_error(const Train& train, std::int64_t ranks) {
    try {
        resolve_batch(train, ranks);
    } catch (const UsageError& error) {
        return error.what();
    }
    return {};
}

TEST(ResolveBatch, ContradictionsNameKeysValuesAndRemedy) {
    const std::string all_given = batch_error(train(2, 4, 24), 4);
    EXPECT_TRUE(contains(all_given, "train.global_batch = 24")) << all_given;
    EXPECT_TRUE(contains(all_given, "train.micro_batch = 2")) << all_given;
    EXPECT_TRUE(contains(all_given, "train.grad_accum_steps = 4")) << all_given;
    EXPECT_TRUE(contains(all_given, "4 ranks = 32")) << all_given;

    const std::string no_accumulation = batch_error(train(4, 0, 24), 4);
    EXPECT_TRUE(contains(no_accumulation, "set train.global_batch to 16 or 32")) << no_accumulation;
    const std::string no_micro_batch = batch_error(train(0, 2, 7), 4);
    EXPECT_TRUE(contains(no_micro_batch, "set train.global_batch to 8,")) << no_micro_batch;
}

}  // namespace
}  // namespace fullshard::config
