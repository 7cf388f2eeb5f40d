// What tests of checkpoints share: a small model, a folder, and everything that is saved.
#pragma once

#include "checkpoint/format/folder.h"
#include "checkpoint/format/manifest.h"
#include "support/mpi_world.h"
#include "support/store_reading.h"
#include "train/checkpoints.h"
#include "train/training_rig.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace fullshard::train {

namespace fs = std::filesystem;
using fullshard::testing::joined;
using fullshard::testing::same_bits;
using fullshard::testing::Sharding;
using fullshard::testing::shardings;
using fullshard::testing::TrainingRig;
using fullshard::testing::world;

inline constexpr std::uint64_t kSeed = 21;

/// Shapes that no number of ranks divides, and units with less than a cache line a rank.
inline spec::SimpleTransformer model() {
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

    Checkpoints checkpoints(TrainingRig& rig, config::Checkpoint keys = {}) {
        keys.keep_last = 0;
        const auto ranks = saving_ranks(keys.files, rig.sharded().topology());
        checkpoint::Manifest header;
        header.seed = kSeed;
        header.writer.ranks = rig.world().size();
        return {{rig.world(), rig.replicas(), rig.layout(), rig.store(), rig.optimizer()},
                ranks,
                folder_,
                header,
                keys};
    }

    /// Returns when the checkpoint is there.
    void save(TrainingRig& rig, const checkpoint::Progress& progress,
              const config::Checkpoint& keys = {}) {
        Checkpoints all = checkpoints(rig, keys);
        auto reports = all.save(progress, /*last=*/!keys.async);
        if (const auto report = all.drain()) reports.push_back(*report);
        ASSERT_EQ(reports.size(), 1u);
        EXPECT_EQ(reports[0].error, "");
        EXPECT_EQ(reports[0].folder, folder_ / checkpoint::folder_name(progress.step));
        EXPECT_EQ(all.staging_bytes(), keys.async ? reports[0].bytes : 0);
    }

    fs::path folder_;
};

/// Some steps on made-up tokens; everything depends on (step, g) only.
inline void train_steps(TrainingRig& rig, std::int64_t first, std::int64_t last) {
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
inline Everything read_everything(TrainingRig& rig) {
    const auto moments = [&](auto moment) {
        std::vector<std::span<const float>> owned;
        for (std::int64_t u = 0; u < rig.optimizer().unit_count(); ++u)
            owned.push_back((rig.optimizer().*moment)(u).template as<float>());
        return joined(fullshard::testing::gather_owned(owned, rig.layout(), rig.gradient_group()));
    };
    return {joined(rig.parameters()), moments(&optim::AdamW::first_moment),
            moments(&optim::AdamW::second_moment), rig.optimizer().step_count()};
}

/// The ways in which checkpoints are written.
inline std::vector<config::Checkpoint> ways_to_save() {
    using enum config::CheckpointFiles;
    return {{.files = kOne},
            {.files = kNode},
            {.files = kOne, .async = true},
            {.files = kNode, .async = true}};
}

}  // namespace fullshard::train
