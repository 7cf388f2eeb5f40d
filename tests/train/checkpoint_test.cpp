// Save anywhere, load anywhere: parameters and moments keep every bit.
#include "base/error.h"
#include "custom_model/mixer.h"
#include "train/checkpoint_case.h"

#include <fstream>
#include <optional>
#include <utility>
#include <vector>

namespace fullshard::train {
namespace {

using fullshard::testing::full_shard;
using fullshard::testing::on_first_ranks;
using fullshard::testing::RigOptions;
using fullshard::testing::unsharded;

/// Every store, and every strategy that keeps state elsewhere than full_shard and no_shard do.
std::vector<Sharding> all_shardings(int ranks) {
    std::vector<Sharding> list = shardings(ranks);
    for (const auto& [name, strategy] :
         {std::pair{"zero1", config::Strategy::kZero1},
          std::pair{"shard_grad_op", config::Strategy::kShardGradOp},
          std::pair{"hybrid_shard_zero2", config::Strategy::kHybridShardZero2}}) {
        Sharding sharding;
        sharding.name = name;
        sharding.shard.strategy = strategy;
        sharding.shard.wrap_policy = config::WrapPolicy::kModel;
        if (ranks % 2 == 0) sharding.shard.group_size = ranks / 2;
        list.push_back(sharding);
    }
    return list;
}

// What lies on a device goes through copies on the host, both ways.
TEST_F(CheckpointTest, DevicesAndHostsLoadWhatTheOtherSaved) {
    const RigOptions on_host{.seed = kSeed};
    RigOptions on_device = on_host;
    on_device.on_device = true;
    std::int64_t step = 3;
    for (const auto& [writing, reading] :
         {std::pair{on_device, on_host}, std::pair{on_host, on_device}}) {
        for (const config::Checkpoint& way : ways_to_save()) {
            TrainingRig writer(world(), model(), writing);
            train_steps(writer, 1, 3);
            save(writer, {.step = step, .optimizer_step = 3}, way);
            const Everything saved = read_everything(writer);
            TrainingRig reader(world(), model(), reading);
            checkpoints(reader).restore(checkpoint::choose(world(), folder_));
            EXPECT_TRUE(read_everything(reader) == saved);
            train_steps(reader, 4, 4);  // the copy in the compute type followed
            ++step;
        }
    }
}

TEST_F(CheckpointTest, SaveAtAnyWorldSizeLoadAtAnyOther) {
    int number = 0;  // so that every way meets every kind of sharding in turn
    for (int writers = 1; writers <= world().size(); ++writers) {
        std::optional<Everything> saved;
        for (const Sharding& sharding : all_shardings(writers)) {
            ++number;
            on_first_ranks(writers, [&](const comm::Group& group) {
                TrainingRig rig(group, model(), {.sharding = sharding, .seed = kSeed});
                train_steps(rig, 1, 3);
                const auto ways = ways_to_save();
                const auto& way = ways[static_cast<std::size_t>(number) % ways.size()];
                save(rig, {.step = 3, .optimizer_step = 3}, way);
                saved = read_everything(rig);
            });
            for (int readers = 1; readers <= world().size(); ++readers) {
                on_first_ranks(readers, [&](const comm::Group& group) {
                    for (const Sharding& reading : all_shardings(readers)) {
                        TrainingRig rig(group, model(), {.sharding = reading, .seed = kSeed + 1});
                        checkpoints(rig).restore(checkpoint::choose(group, folder_));
                        const Everything loaded = read_everything(rig);
                        // Every rank that wrote knows what was saved.
                        if (world().rank() < writers) {
                            EXPECT_TRUE(loaded == *saved)
                                << sharding.name << " on " << writers << " to " << reading.name
                                << " on " << readers;
                        }
                    }
                });
            }
        }
    }
}

TEST_F(CheckpointTest, ResumedTrainingEqualsUninterruptedTraining) {
    std::optional<Everything> expected;
    on_first_ranks(1, [&](const comm::Group& one) {
        TrainingRig rig(one, model(), {.sharding = unsharded(), .micro_batches = 4, .seed = kSeed});
        train_steps(rig, 1, 8);
        expected = read_everything(rig);
    });
    for (const int writers : {1, 2, 4}) {
        on_first_ranks(writers, [&](const comm::Group& group) {
            TrainingRig rig(group, model(),
                            {.sharding = full_shard(config::Store::kResident),
                             .micro_batches = 4 / writers,
                             .seed = kSeed});
            train_steps(rig, 1, 4);
            save(rig, {.step = 4, .optimizer_step = 4});
        });
        for (const int readers : {1, 2, 4}) {
            on_first_ranks(readers, [&](const comm::Group& group) {
                TrainingRig rig(group, model(),
                                {.sharding = full_shard(config::Store::kSlotted),
                                 .micro_batches = 4 / readers,
                                 .seed = kSeed});
                checkpoints(rig).restore(checkpoint::choose(group, folder_));
                train_steps(rig, 5, 8);
                const Everything resumed = read_everything(rig);
                if (world().rank() == 0) {
                    EXPECT_TRUE(resumed == *expected) << writers << " to " << readers << " ranks";
                }
            });
        }
    }
}

TEST_F(CheckpointTest, SaveAfterLoadIsTheSameFile) {
    TrainingRig rig(world(), model(), {.seed = kSeed});
    train_steps(rig, 1, 2);
    save(rig, {.step = 2, .optimizer_step = 2});
    const auto first = checkpoint::open_folder(folder_ / checkpoint::folder_name(2));
    TrainingRig again(world(), model(), {.seed = kSeed + 1});
    checkpoints(again).restore(checkpoint::choose(world(), folder_));
    save(again, {.step = 2, .optimizer_step = 2});
    EXPECT_TRUE(checkpoint::open_folder(folder_ / checkpoint::folder_name(2)) == first);
}

TEST_F(CheckpointTest, FlippedBitIsAnErrorOnEveryRankThatNamesTheTensor) {
    TrainingRig rig(world(), model(), {.seed = kSeed});
    save(rig, {.step = 1});
    const fs::path folder = folder_ / checkpoint::folder_name(1);
    if (world().rank() == 0) {
        const auto entry =
            checkpoint::open_folder(folder).tensor(checkpoint::State::kModel, "head.weight");
        std::fstream file(folder / checkpoint::kStateFile,
                          std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(entry.parts[0].file_offset + 9);
        const char byte = static_cast<char>(file.get() ^ 4);
        file.seekp(entry.parts[0].file_offset + 9);
        file.put(byte);
    }
    world().barrier();
    try {
        checkpoints(rig).restore(checkpoint::choose(world(), folder));
        FAIL() << "no error";
    } catch (const Error& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::kData);
        EXPECT_NE(std::string(error.what()).find("head.weight"), std::string::npos) << error.what();
    }
}

TEST_F(CheckpointTest, AnotherModelIsRefusedWithAllDifferences) {
    TrainingRig rig(world(), model(), {.seed = kSeed});
    save(rig, {.step = 1});
    auto wider = model();
    wider.vocab_size = 14;
    wider.num_layers = 1;
    TrainingRig other(world(), wider, {.seed = kSeed});
    try {
        checkpoints(other).restore(checkpoint::choose(world(), folder_));
        FAIL() << "no error";
    } catch (const Error& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("embedding.weight has shape [13, 6] instead of [14, 6]"),
                  std::string::npos)
            << text;
        EXPECT_NE(text.find("layers.1.norm1.weight is not in the model"), std::string::npos)
            << text;
    }
}

/// Freezes the first layer and gives the biases a rate of their own.
config::Optimizer with_frozen_layer() {
    config::Optimizer optimizer;
    config::ParameterGroup frozen;
    frozen.name = "frozen";
    frozen.patterns = {"layers.0.*"};
    frozen.frozen = true;
    config::ParameterGroup biases;
    biases.name = "biases";
    biases.patterns = {"*.bias"};
    biases.lr = 1e-2;
    optimizer.groups = {frozen, biases};
    return optimizer;
}

TEST_F(CheckpointTest, FrozenParametersAreSavedWithoutMomentsAndLoaded) {
    for (const Sharding& sharding : shardings(world().size())) {
        RigOptions options{.sharding = sharding, .seed = kSeed};
        options.optimizer = with_frozen_layer();
        TrainingRig rig(world(), model(), options);
        train_steps(rig, 1, 2);
        save(rig, {.step = 2, .optimizer_step = 2});
        const Everything saved = read_everything(rig);

        const auto manifest = checkpoint::open_folder(folder_ / checkpoint::folder_name(2));
        for (const checkpoint::TensorEntry& tensor : manifest.tensors) {
            if (tensor.state == checkpoint::State::kModel) continue;
            EXPECT_FALSE(tensor.parameter.starts_with("layers.0.")) << tensor.parameter;
        }
        EXPECT_NO_THROW(manifest.tensor(checkpoint::State::kModel, "layers.0.linear1.weight"));
        EXPECT_NO_THROW(manifest.tensor(checkpoint::State::kSecondMoment, "head.bias"));

        RigOptions other = options;
        other.seed = kSeed + 1;
        TrainingRig again(world(), model(), other);
        checkpoints(again).restore(checkpoint::choose(world(), folder_));
        EXPECT_TRUE(read_everything(again) == saved) << sharding.name;
    }
}

TEST_F(CheckpointTest, ThawedParametersHaveNoMomentsToLoad) {
    RigOptions frozen{.seed = kSeed};
    frozen.optimizer = with_frozen_layer();
    TrainingRig rig(world(), model(), frozen);
    save(rig, {.step = 1});
    TrainingRig thawed(world(), model(), {.seed = kSeed});
    try {
        checkpoints(thawed).restore(checkpoint::choose(world(), folder_));
        FAIL() << "no error";
    } catch (const Error& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::kData);
        EXPECT_NE(
            std::string(error.what())
                .find("optimizer/exp_avg/layers.0.linear1.weight is missing (was the parameter "
                      "frozen?)"),
            std::string::npos)
            << error.what();
    }
}

TEST_F(CheckpointTest, TiedParametersAreSavedOnce) {
    auto tied = model();
    tied.tie_embeddings = true;
    TrainingRig rig(world(), tied, {.seed = kSeed});
    train_steps(rig, 1, 2);
    save(rig, {.step = 2, .optimizer_step = 2});
    const auto manifest = checkpoint::open_folder(folder_ / checkpoint::folder_name(2));
    EXPECT_NO_THROW(manifest.tensor(checkpoint::State::kModel, "embedding.weight"));
    EXPECT_THROW(manifest.tensor(checkpoint::State::kModel, "head.weight"), DataError);
    TrainingRig again(world(), tied, {.seed = kSeed + 1});
    checkpoints(again).restore(checkpoint::choose(world(), folder_));
    EXPECT_TRUE(read_everything(again) == read_everything(rig));
}

// A 0-dimensional gain, a convolution of three dimensions, and a head that is the embedding.
TEST_F(CheckpointTest, OwnModelIsSavedAndLoadedAtAnotherWorldSize) {
    const auto mixer =
        mixer::make_mixer({.vocab_size = 13, .width = 6, .blocks = 2, .kernel = 2, .dropout = 0.1});
    std::optional<Everything> saved;
    {
        TrainingRig rig(world(), mixer, {.seed = kSeed});
        train_steps(rig, 1, 2);
        save(rig, {.step = 2, .optimizer_step = 2});
        saved = read_everything(rig);
    }
    const auto manifest = checkpoint::open_folder(folder_ / checkpoint::folder_name(2));
    EXPECT_TRUE(manifest.tensor(checkpoint::State::kSecondMoment, "blocks.1.gain").shape.empty());
    EXPECT_THROW(manifest.tensor(checkpoint::State::kModel, "head.weight"), DataError);
    for (int readers = 1; readers <= world().size(); ++readers) {
        on_first_ranks(readers, [&](const comm::Group& group) {
            TrainingRig rig(group, mixer, {.seed = kSeed + 1});
            checkpoints(rig).restore(checkpoint::choose(group, folder_));
            EXPECT_TRUE(read_everything(rig) == *saved) << readers << " readers";
        });
    }
}

// https://github.com/TensorAuto/OpenTau/issues/185: a resume from compute weights loses bits.
TEST_F(CheckpointTest, MasterParametersAreNotRebuiltFromBf16) {
    for (const Sharding& sharding : shardings(world().size())) {
        const config::Precision precision{.param = DType::kBFloat16};
        TrainingRig rig(world(), model(),
                        {.sharding = sharding, .seed = kSeed, .precision = precision});
        train_steps(rig, 1, 2);
        save(rig, {.step = 2, .optimizer_step = 2});
        // The same seed, as dropout goes on from it.
        TrainingRig again(world(), model(),
                          {.sharding = sharding, .seed = kSeed, .precision = precision});
        checkpoints(again).restore(checkpoint::choose(world(), folder_));
        train_steps(rig, 3, 4);
        train_steps(again, 3, 4);
        EXPECT_TRUE(read_everything(again) == read_everything(rig)) << sharding.name;
    }
}

}  // namespace
}  // namespace fullshard::train
