// The chunked linear layer with cross-entropy against ATen's own.
#include "model/head.h"
#include "model/stage_rig.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace fullshard::model {
namespace {

constexpr double kTolerance = 1e-5;
constexpr std::int64_t kSequence = 8;

/// A vocabulary for which a chunk has 64 rows.
spec::SimpleTransformer wide_model() {
    spec::SimpleTransformer model;
    model.vocab_size = 16384;
    model.d_model = 8;
    model.num_layers = 1;
    return model;
}

class Loss : public testing::TestWithParam<std::int64_t> {
  protected:
    std::int64_t rows() const { return GetParam(); }
    at::Tensor input() const {
        return random_tensor({rows() / kSequence, kSequence, model_.d_model}, 5)
            .requires_grad_(true);
    }
    MicroBatch batch() const {
        MicroBatch result;
        result.targets = random_classes({rows() / kSequence, kSequence}, model_.vocab_size, 6);
        result.loss_factor = 0.01;
        result.loss_scale = 3.0;
        return result;
    }

    void compare(const MicroBatch& batch) {
        const at::Tensor x = input(), reference_x = input();
        const auto w = rig_.copies();
        const at::Tensor want =
            at::cross_entropy_loss(at::linear(reference_x, w[0], w[1]).flatten(0, 1),
                                   batch.targets.flatten(), /*weight=*/{}, at::Reduction::Sum,
                                   MicroBatch::kIgnoredTarget) *
            batch.loss_factor;
        const at::Tensor grad_loss = at::scalar_tensor(batch.loss_scale);
        const auto gradients =
            torch::autograd::grad({want}, {reference_x, w[0], w[1]}, {grad_loss});

        rig_.sink().poison();
        const at::Tensor loss = rig_.head().loss(x, batch);
        expect_close(loss, want, 1e-6, "loss");
        expect_close(rig_.backward(loss, x, grad_loss), gradients[0], kTolerance, "gradient of x");
        expect_close(rig_.gradient(0), gradients[1], kTolerance, "gradient of the weight");
        expect_close(rig_.gradient(1), gradients[2], kTolerance, "gradient of the bias");

        const at::Tensor again = rig_.head().loss(x, batch);
        rig_.backward(again, x, grad_loss);
        expect_close(rig_.gradient(0), 2 * gradients[1], kTolerance, "accumulated weight gradient");
        expect_close(rig_.gradient(1), 2 * gradients[2], kTolerance, "accumulated bias gradient");
    }

    spec::SimpleTransformer model_ = wide_model();
    StageRig rig_{model_, 2};
};

TEST_P(Loss, EqualsCrossEntropyOfAllLogits) {
    ASSERT_EQ(loss_chunk_rows(model_.vocab_size), 64);
    compare(batch());
}

TEST_P(Loss, LeavesIgnoredTargetsOut) {
    auto some_ignored = batch();
    some_ignored.targets.select(1, kSequence - 1).fill_(MicroBatch::kIgnoredTarget);
    some_ignored.targets.select(0, 0).fill_(MicroBatch::kIgnoredTarget);
    compare(some_ignored);
}

TEST_P(Loss, IsZeroWithZeroGradientsWhereAllTargetsAreIgnored) {
    auto nothing = batch();
    nothing.targets.fill_(MicroBatch::kIgnoredTarget);
    const at::Tensor x = input();
    const at::Tensor loss = rig_.head().loss(x, nothing);
    EXPECT_EQ(loss.item<float>(), 0.0F);
    const at::Tensor grad_x = rig_.backward(loss, x, at::scalar_tensor(nothing.loss_scale));
    EXPECT_EQ(grad_x.abs().max().item<float>(), 0.0F);
    for (std::size_t i = 0; i < rig_.size(); ++i) {
        EXPECT_TRUE(rig_.sink().written(i));
        EXPECT_TRUE(rig_.gradient(i).eq(0).all().item<bool>());  // false for NaN
    }
}

TEST_P(Loss, RunsWithoutAGraph) {
    const at::Tensor x = input();
    const at::Tensor with_graph = rig_.head().loss(x, batch());
    const at::NoGradGuard no_grad;
    const at::Tensor without = rig_.head().loss(x, batch());
    EXPECT_FALSE(without.requires_grad());
    EXPECT_TRUE(without.equal(with_graph));
}

INSTANTIATE_TEST_SUITE_P(Rows, Loss, testing::Values(40, 64, 128, 152));

TEST(Loss, StaysFiniteForLargeLogits) {
    auto model = wide_model();
    model.vocab_size = 16;
    StageRig rig(model, 2);
    const at::Tensor x = random_tensor({1, kSequence, model.d_model}, 1) * 1e4;
    MicroBatch batch;
    batch.targets = random_classes({1, kSequence}, model.vocab_size, 2);
    const auto w = rig.copies();
    expect_close(rig.head().loss(x, batch),
                 at::cross_entropy_loss(at::linear(x, w[0], w[1])[0], batch.targets[0], {},
                                        at::Reduction::Sum),
                 1e-6, "loss");
}

TEST(LossChunkRows, HoldsAboutFourMebibytesButAtLeast64Rows) {
    EXPECT_EQ(loss_chunk_rows(256), 4096);
    EXPECT_EQ(loss_chunk_rows(16384), 64);
    EXPECT_EQ(loss_chunk_rows(128256), 64);
}

}  // namespace
}  // namespace fullshard::model
