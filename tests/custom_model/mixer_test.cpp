#include "custom_model/mixer.h"

#include "model/stage.h"
#include "model/stage_rig.h"

#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>

namespace mixer {
namespace {

using namespace fullshard;
using namespace fullshard::model;

constexpr std::int64_t kBatch = 2, kSequence = 12;

Options small() {
    return {.vocab_size = 17, .width = 8, .blocks = 2, .kernel = 3, .dropout = 0.2};
}

MicroBatch small_batch() {
    MicroBatch batch;
    batch.tokens = random_classes({kBatch, kSequence}, small().vocab_size, 1);
    batch.targets = random_classes({kBatch, kSequence}, small().vocab_size, 2);
    return batch;
}

TEST(Mixer, HasAStagePerModuleAndATiedHead) {
    const auto model = make_mixer(small());
    const auto& stages = model->spec().stages;
    ASSERT_EQ(stages.size(), 4U);
    EXPECT_EQ(stages[2].name, "blocks.1");
    EXPECT_TRUE(stages[1].block && stages[2].block);
    EXPECT_FALSE(stages[0].block || stages[3].block);
    EXPECT_EQ(stages[3].parameters[0].tied_to, "embedding.weight");
    EXPECT_EQ(stages[1].parameters[0].name, "blocks.0.gain");
    EXPECT_TRUE(stages[1].parameters[0].shape.empty());
}

TEST(Mixer, ABlockSeesNoLaterToken) {
    StageRig rig(make_mixer(small()), 1);
    MicroBatch batch = small_batch();
    batch.training = false;
    const at::NoGradGuard no_grad;
    const at::Tensor x = random_tensor({kBatch, kSequence, small().width}, 3);
    const at::Tensor before = rig.stage().forward(x, batch).clone();
    x.narrow(1, kSequence / 2, kSequence / 2).fill_(7.0);
    const at::Tensor after = rig.stage().forward(x, batch);
    EXPECT_TRUE(after.narrow(1, 0, kSequence / 2).equal(before.narrow(1, 0, kSequence / 2)));
    EXPECT_FALSE(after.equal(before));
}

TEST(Mixer, DropoutIsAFunctionOfTheSeedAndOffInEvaluation) {
    StageRig rig(make_mixer(small()), 1);
    const at::Tensor x = random_tensor({kBatch, kSequence, small().width}, 3);
    const auto run = [&](std::uint64_t seed, bool training) {
        MicroBatch batch = small_batch();
        batch.training = training;
        seed_generator(seed);
        return rig.stage().forward(x, batch).detach();
    };
    EXPECT_TRUE(run(1, true).equal(run(1, true)));
    EXPECT_FALSE(run(1, true).equal(run(2, true)));
    EXPECT_TRUE(run(1, false).equal(run(2, false)));
}

class MixerType : public testing::TestWithParam<DType> {};

TEST_P(MixerType, EveryParameterGetsAFiniteGradient) {
    const auto model = make_mixer(small());
    for (std::size_t index = 0; index < 4; ++index) {
        StageRig rig(model, index, {.compute = GetParam()});
        const at::Tensor x = index == 0 ? at::Tensor()
                                        : random_tensor({kBatch, kSequence, small().width}, 3)
                                              .to(scalar_type(GetParam()))
                                              .requires_grad_(true);
        const at::Tensor out =
            index == 3 ? rig.head().loss(x, small_batch()) : rig.stage().forward(x, small_batch());
        EXPECT_EQ(out.scalar_type(), index == 3 ? at::kFloat : scalar_type(GetParam()));
        rig.backward(out, x, index == 3 ? at::scalar_tensor(1.0) : out.detach());
        for (std::size_t i = 0; i < rig.size(); ++i) {
            ASSERT_TRUE(rig.sink().written(i)) << index << ' ' << i;
            EXPECT_GT(rig.gradient(i).abs().max().item<float>(), 0) << index << ' ' << i;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, MixerType,
                         testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& entry) { return std::string(name_of(entry.param)); });

}  // namespace
}  // namespace mixer
