// Save anywhere, load anywhere: parameters and moments keep every bit.
#include "base/error.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/manifest.h"
#include "support/mpi_world.h"
#include "support/store_reading.h"
#include "train/checkpoints.h"
#include "train/training_rig.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace fullshard::train {
namespace {

namespace fs = std::filesystem;
using fullshard::testing::joined;
using fullshard::testing::on_first_ranks;
using fullshard::testing::same_bits;
using fullshard::testing::Sharding;
using fullshard::testing::shardings;
using fullshard::testing::TrainingRig;
using fullshard::testing::world;

constexpr std::uint64_t kSeed = 21;

/// Shapes that no number of ranks divides, and units with less than a cache line a rank.
spec::SimpleTransformer model() {
    return {.vocab_size = 13,
            .d_model = 6,
            .num_heads = 2,
            .num_layers = 2,
            .d_ff = 11,
            .dropout = 0.1};
}

class CheckpointTest : public ::testing::Test {
  protected:
    CheckpointTest() {
        const std::string mine =
            fs::path(::testing::TempDir()) / ("fullshard-checkpoint-" + std::to_string(getpid()));
        folder_ = world().broadcast(mine, 0);
    }
    ~CheckpointTest() override {
        world().barrier();
        if (world().rank() == 0) fs::remove_all(folder_);
    }

    Checkpoints checkpoints(TrainingRig& rig) {
        checkpoint::Manifest header;
        header.seed = kSeed;
        header.writer.ranks = rig.world().size();
        return {{rig.world(), rig.layout(), rig.store(), rig.optimizer()}, folder_, header, 0};
    }

    fs::path folder_;
};

/// Some steps on made-up tokens; everything depends on (step, g) only.
void train_steps(TrainingRig& rig, std::int64_t first, std::int64_t last) {
    for (std::int64_t step = first; step <= last; ++step) {
        const auto load = [step](std::int64_t g) {
            data::TokenBatch batch{
                .tokens = {}, .targets = {}, .batch = 1, .sequence = 5, .valid_targets = 5};
            for (std::int64_t i = 0; i < 5; ++i) {
                batch.tokens.push_back((step * 7 + g * 3 + i) % 13);
                batch.targets.push_back((step * 5 + g + i * 2) % 13);
            }
            return batch;
        };
        rig.accumulate(step, load, 20);
        rig.update(0.01);
    }
}

struct Everything {
    std::vector<float> parameters, first_moments, second_moments;
    std::int64_t steps = 0;

    bool operator==(const Everything& other) const {
        return same_bits(parameters, other.parameters) &&
               same_bits(first_moments, other.first_moments) &&
               same_bits(second_moments, other.second_moments) && steps == other.steps;
    }
};

/// The logical elements of all ranks, in the model's order, on every rank.
Everything read_everything(TrainingRig& rig) {
    const auto moments = [&](auto moment) {
        std::vector<std::span<const float>> owned;
        for (std::int64_t u = 0; u < rig.optimizer().unit_count(); ++u)
            owned.push_back((rig.optimizer().*moment)(u));
        return joined(fullshard::testing::gather_owned(owned, rig.layout(), rig.world()));
    };
    return {joined(rig.parameters()), moments(&optim::AdamW::first_moment),
            moments(&optim::AdamW::second_moment), rig.optimizer().step_count()};
}

TEST_F(CheckpointTest, SaveAtAnyWorldSizeLoadAtAnyOther) {
    for (int writers = 1; writers <= world().size(); ++writers) {
        std::optional<Everything> saved;
        for (const Sharding& sharding : shardings(writers)) {
            on_first_ranks(writers, [&](const comm::Group& group) {
                TrainingRig rig(group, model(), sharding, 1, kSeed);
                train_steps(rig, 1, 3);
                checkpoints(rig).save({.step = 3, .optimizer_step = 3});
                saved = read_everything(rig);
            });
            for (int readers = 1; readers <= world().size(); ++readers) {
                on_first_ranks(readers, [&](const comm::Group& group) {
                    for (const Sharding& reading : shardings(readers)) {
                        TrainingRig rig(group, model(), reading, 1, kSeed + 1);
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
        TrainingRig rig(one, model(), {"private", shard::StoreKind::kPrivate}, 4, kSeed);
        train_steps(rig, 1, 8);
        expected = read_everything(rig);
    });
    for (const int writers : {1, 2, 4}) {
        on_first_ranks(writers, [&](const comm::Group& group) {
            TrainingRig rig(group, model(), {"resident"}, 4 / writers, kSeed);
            train_steps(rig, 1, 4);
            checkpoints(rig).save({.step = 4, .optimizer_step = 4});
        });
        for (const int readers : {1, 2, 4}) {
            on_first_ranks(readers, [&](const comm::Group& group) {
                TrainingRig rig(group, model(), {"slotted", shard::StoreKind::kSlotted},
                                4 / readers, kSeed);
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
    const Sharding sharding{"resident"};
    TrainingRig rig(world(), model(), sharding, 1, kSeed);
    train_steps(rig, 1, 2);
    checkpoints(rig).save({.step = 2, .optimizer_step = 2});
    const auto first = checkpoint::open_folder(folder_ / checkpoint::folder_name(2));
    TrainingRig again(world(), model(), sharding, 1, kSeed + 1);
    checkpoints(again).restore(checkpoint::choose(world(), folder_));
    checkpoints(again).save({.step = 2, .optimizer_step = 2});
    EXPECT_TRUE(checkpoint::open_folder(folder_ / checkpoint::folder_name(2)) == first);
}

TEST_F(CheckpointTest, FlippedBitIsAnErrorOnEveryRankThatNamesTheTensor) {
    TrainingRig rig(world(), model(), {"resident"}, 1, kSeed);
    checkpoints(rig).save({.step = 1});
    const fs::path folder = folder_ / checkpoint::folder_name(1);
    if (world().rank() == 0) {
        const auto entry =
            checkpoint::open_folder(folder).tensor(checkpoint::State::kModel, "head.weight");
        std::fstream file(folder / checkpoint::kStateFile,
                          std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(entry.file_offset + 9);
        const char byte = static_cast<char>(file.get() ^ 4);
        file.seekp(entry.file_offset + 9);
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
    TrainingRig rig(world(), model(), {"resident"}, 1, kSeed);
    checkpoints(rig).save({.step = 1});
    auto wider = model();
    wider.vocab_size = 14;
    wider.num_layers = 1;
    TrainingRig other(world(), wider, {"resident"}, 1, kSeed);
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

}  // namespace
}  // namespace fullshard::train
