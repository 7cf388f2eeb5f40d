// What users of other trainers reported of their checkpoints, where it takes whole trainings to
// show.
#include "train/checkpoint_case.h"

#include <algorithm>

namespace fullshard::train {
namespace {

using fullshard::testing::RigOptions;

class ReportedCheckpointBugs : public CheckpointTest {};

// https://github.com/huggingface/accelerate/issues/3971,
// https://github.com/pytorch/torchtitan/pull/3356: moments that are known by their place in a list
// of groups go to other parameters when the list changes.
TEST_F(ReportedCheckpointBugs, MomentsFollowTheirParametersWhenGroupsChangeTheirOrder) {
    config::ParameterGroup weights;
    weights.name = "weights";
    weights.patterns = {"*.weight"};
    weights.lr = 2e-2;
    config::ParameterGroup biases;
    biases.name = "biases";
    biases.patterns = {"*.bias"};
    biases.lr = 5e-3;
    for (const Sharding& sharding : shardings(world().size())) {
        RigOptions options{.sharding = sharding, .seed = kSeed};
        options.optimizer.groups = {weights, biases};
        TrainingRig rig(world(), model(), options);
        train_steps(rig, 1, 2);
        save(rig, {.step = 2, .optimizer_step = 2});

        std::ranges::reverse(options.optimizer.groups);
        TrainingRig again(world(), model(), options);
        checkpoints(again).restore(checkpoint::choose(world(), folder_));
        EXPECT_TRUE(read_everything(again) == read_everything(rig)) << sharding.name;
        train_steps(rig, 3, 4);
        train_steps(again, 3, 4);
        EXPECT_TRUE(read_everything(again) == read_everything(rig)) << sharding.name;
    }
}

}  // namespace
}  // namespace fullshard::train
