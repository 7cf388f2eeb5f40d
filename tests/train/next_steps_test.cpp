#include "train/next_steps.h"

#include <gtest/gtest.h>

namespace fullshard::train {
namespace {

using Lines = std::vector<std::string>;

LaunchInfo launched_by(const std::string& launcher) {
    return {.launcher = launcher,
            .command = {"bin/fullshard", "train", "my deck.ini", "--run.dir", "runs/a"}};
}

config::Deck deck_in(const std::string& folder) {
    config::Deck deck;
    deck.run.dir = folder;
    return deck;
}

TEST(NextSteps, OfAStoppedRunAreItsOwnCommand) {
    config::Deck deck = deck_in("runs/a");
    const EndOfRun end{.stopped_early = true, .step = 60, .saved = true, .evaluates = true};
    EXPECT_EQ(next_steps(end, deck, launched_by("mpirun"), 4),
              (Lines{"next: the same command goes on from step 60: mpirun -n 4 bin/fullshard train "
                     "'my deck.ini' --run.dir runs/a"}));
    EXPECT_EQ(next_steps(end, deck, launched_by("none"), 1),
              (Lines{"next: the same command goes on from step 60: bin/fullshard train "
                     "'my deck.ini' --run.dir runs/a"}));
    deck.checkpoint.resume = "never";
    EXPECT_TRUE(next_steps(end, deck, launched_by("srun"), 4)[0].starts_with(
        "next: the same command, with checkpoint.resume = auto, goes on from step 60: srun -n 4 "));
}

TEST(NextSteps, StartSrunWithThePmixThatTheRunHad) {
    LaunchInfo launch = launched_by("srun");
    launch.pmix = true;
    EXPECT_TRUE(
        next_steps({.stopped_early = true, .step = 7}, deck_in("r"), launch, 2)[0].starts_with(
            "next: the same command goes on from step 7: srun --mpi=pmix -n 2 bin/fullshard "
            "train "));
}

TEST(NextSteps, InABatchJobAreItsScript) {
    LaunchInfo launch = launched_by("srun");
    launch.batch = true;
    EXPECT_EQ(
        next_steps({.stopped_early = true, .step = 7, .saved = true}, deck_in("r"), launch, 2),
        (Lines{"next: the job's script, by sbatch unless it requeues itself, goes on from "
               "step 7"}));
}

TEST(NextSteps, OfAFinishedRunUseItsWeights) {
    const EndOfRun end{.step = 100, .saved = true, .evaluates = true};
    EXPECT_EQ(next_steps(end, deck_in("runs/it's"), launched_by("mpirun"), 2),
              (Lines{"next: fullshard-ckpt consolidate 'runs/it'\\''s' --out "
                     "'runs/it'\\''s/model.safetensors'",
                     "then: mpirun -n 2 bin/fullshard eval 'runs/it'\\''s/effective.ini' "
                     "--model.init_from 'runs/it'\\''s/model.safetensors'"}));
    EXPECT_EQ(next_steps({.step = 100}, deck_in("r"), launched_by("mpirun"), 2),
              (Lines{"next: nothing was saved; set checkpoint.every to keep the weights"}));
}

TEST(LaunchText, TellsLauncherAndJob) {
    EXPECT_EQ(launch_text({}), "no launcher");
    EXPECT_EQ(launch_text({.launcher = "srun", .job = "4711", .partition = "debug"}),
              "srun, Slurm job 4711 on partition debug");
    EXPECT_EQ(launch_text({.launcher = "mpirun", .job = "4711", .restarts = 2}),
              "mpirun, Slurm job 4711, restart 2");
}

}  // namespace
}  // namespace fullshard::train
