// fullshard-ckpt as its users meet it: words in, exit code and text out.
#include "base/files.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/state_file.h"
#include "checkpoint/tool_runner.h"

#include <nlohmann/json.hpp>
#include <stdlib.h>

#include <limits>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

using toy::Result;

class ToolTest : public toy::ToolRunner {
  protected:
    fs::path save_run(const char* run, const toy::Save& save) const {
        return toy::save(folder_.path() / run / "checkpoints", save);
    }
    /// Changes one element of a tensor as another training would have, digests included.
    static void set_element(const fs::path& saved, State state, const std::string& parameter,
                            std::int64_t at, float value) {
        StateFile file = StateFile::open_to_write(saved / kStateFile);
        file.write(dataset_path(state, parameter), at, std::span(&value, 1));
        file.close();
        toy::rewrite_manifest(saved, [&](Manifest& manifest) {
            const StateFile changed = StateFile::open(saved / kStateFile);
            for (TensorEntry& tensor : manifest.tensors) {
                for (Block& block : tensor.blocks) {
                    std::vector<float> values(static_cast<std::size_t>(block.count));
                    changed.read(dataset_path(tensor.state, tensor.parameter), block.begin, values);
                    block.digest = digest(values.data(), values.size() * sizeof(float));
                }
            }
        });
    }
};

TEST_F(ToolTest, HelpAndVersion) {
    EXPECT_TRUE(toy::contains(run("--help").out, "usage: fullshard-ckpt inspect DIR"));
    EXPECT_TRUE(toy::contains(run("verify -h").out, "usage: fullshard-ckpt inspect DIR"));
    EXPECT_TRUE(toy::contains(run("--version").out, "fullshard-ckpt 0."));
    EXPECT_EQ(run("--version").exit_code, 0);
}

TEST_F(ToolTest, WrongWordsAreOneLineAndExitCodeTwo) {
    expect_usage_error("unpack x", "unknown command 'unpack'");
    expect_usage_error("verify", "verify takes 1 path, not 0; use: fullshard-ckpt verify DIR");
    expect_usage_error("verify a b", "verify takes 1 path, not 2");
    expect_usage_error("diff a", "diff takes 2 paths, not 1");
    expect_usage_error("verify a --force", "unknown option --force");
    expect_usage_error("diff a b --rtol", "--rtol needs a value");
    expect_usage_error("diff a b --rtol much", "--rtol much: must be a number, zero or more");
    expect_usage_error("diff a b --rtol=-1", "--rtol -1: must be a number, zero or more");
    expect_usage_error("diff a b --rtol=nan", "must be a number");
    expect_usage_error("consolidate a", "--out is missing");
    expect_usage_error("consolidate a --out b.h5 --force=yes", "--force takes no value");
}

TEST_F(ToolTest, InspectShowsWhatACheckpointHolds) {
    const fs::path saved = save_run("run", {.ranks = 3});
    const Result result = run("inspect " + saved.string());
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.error, "");
    for (const char* part :
         {"status           complete", "step             10\n", "optimizer steps  9\n",
          "FullShard 0.1.0 (0123abc), 3 ranks, full", "reduce.order tree, 2 threads, AVX2",
          "elements         175 in model\n", "layers.0.convolution     [3, 4, 5]",
          "model, optimizer/exp_avg, optimizer/exp_avg_sq\n"}) {
        EXPECT_TRUE(toy::contains(result.out, part));
    }
}

TEST_F(ToolTest, InspectShowsFrozenParametersAndLossScaling) {
    const fs::path saved = save_run("run", {.frozen = {"scale", "layers.0.linear1.bias"}});
    EXPECT_FALSE(toy::contains(run("inspect " + saved.string()).out, "skipped steps"));
    toy::rewrite_manifest(saved, [](Manifest& manifest) {
        manifest.progress.skipped_steps = 1;
        manifest.progress.loss_scaler = {.scale = 32768, .good_steps = 4, .hysteresis_left = 2};
    });
    const Result result = run("inspect " + saved.string());
    EXPECT_EQ(result.exit_code, 0) << result.error;
    for (const char* part :
         {"skipped steps    1\n", "loss scale       32768, 4 good steps, hysteresis 2\n",
          "elements         175 in model\n", "elements         161 in optimizer/exp_avg_sq\n",
          "scale                    []                           1  model\n"}) {
        EXPECT_TRUE(toy::contains(result.out, part));
    }
    EXPECT_EQ(run("verify " + saved.string()).out,
              saved.string() + " is whole: 1988 bytes of tensors verified\n");
}

TEST_F(ToolTest, InspectTellsWhatIsWrong) {
    const fs::path saved = save_run("run", {});
    fs::remove(saved / kCompleteFile);
    const Result result = run("inspect " + saved.string());
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_TRUE(toy::contains(result.out, "COMPLETE is missing"));
    EXPECT_TRUE(toy::contains(result.out, "step             10\n"));
    EXPECT_TRUE(toy::contains(result.error, "is not whole"));
}

TEST_F(ToolTest, VerifyTakesTheNewestWholeOneOfARun) {
    const fs::path older = save_run("run", {.step = 5});
    const fs::path newer = save_run("run", {.step = 10});
    fs::remove(newer / kCompleteFile);
    for (const fs::path& path :
         {folder_.path() / "run", folder_.path() / "run" / "checkpoints" / ""}) {
        const Result result = run("verify " + path.string());
        EXPECT_EQ(result.exit_code, 0);
        EXPECT_EQ(result.out, older.string() + " is whole: 2100 bytes of tensors verified\n");
        EXPECT_EQ(result.error, "passed over: " + (newer / kCompleteFile).string() +
                                    " is missing: the save did not finish\nnewest whole one: " +
                                    older.string() + "\n");
    }
}

TEST_F(ToolTest, VerifyNamesEachDamageAndExitsWithThree) {
    const fs::path saved = save_run("run", {});
    const Manifest manifest = open_folder(saved);
    toy::flip_bit(saved / kStateFile, manifest.tensor(State::kModel, "scale").parts[0].file_offset,
                  4);
    toy::flip_bit(saved / kStateFile,
                  manifest.tensor(State::kFirstMoment, "scale").parts[0].file_offset, 4);
    const Result result = run("verify " + saved.string());
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_TRUE(toy::contains(result.out, "damage: " + (saved / kStateFile).string() +
                                              ": /model/scale, elements [0, 1): damaged"));
    EXPECT_TRUE(toy::contains(result.out, "/optimizer/exp_avg/scale, elements [0, 1): damaged"));
    EXPECT_EQ(result.error,
              "fullshard-ckpt: " + saved.string() + " is not whole: 2 damages found\n");
}

TEST_F(ToolTest, NothingToLookAtIsExitCodeThree) {
    fs::create_directory(folder_.path() / "empty");
    for (const char* words : {"verify ", "inspect ", "consolidate --out x.h5 ", "diff . "}) {
        for (const char* name : {"absent", "empty"}) {
            const Result result = run(words + (folder_.path() / name).string());
            EXPECT_EQ(result.exit_code, 3) << words;
            EXPECT_TRUE(result.error.starts_with("fullshard-ckpt: ")) << result.error;
        }
    }
}

TEST_F(ToolTest, DiffOfEqualTensorsIsZeroWhoeverWroteThem) {
    const std::string a = save_run("a", {.ranks = 1}).string();
    const std::string b = save_run("b", {.ranks = 4}).string();
    const Result result = run("diff " + a + " " + b);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.out, "A: " + a + "\nB: " + b + "\n15 tensors bit-equal\n");
    EXPECT_EQ(run("diff " + a + " " + (folder_.path() / "b").string()).exit_code, 0);
}

TEST_F(ToolTest, DiffShowsHowFarTensorsAreApart) {
    const fs::path a = save_run("a", {});
    const fs::path b = save_run("b", {});
    const std::string words = "diff " + a.string() + " " + b.string();
    set_element(a, State::kModel, "scale", 0, 2.0f);
    set_element(b, State::kModel, "scale", 0, 2.5f);
    const Result result = run(words);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_TRUE(
        toy::contains(result.out,
                      "/model/scale  1 of 1 elements, max abs 5.000e-01, max rel 2.000e-01\n"
                      "1 tensors differ, 15 have equal names and shapes\n"));
    EXPECT_EQ(run(words + " --rtol 0.19").exit_code, 1);
    const Result near = run(words + " --rtol=0.2");
    EXPECT_EQ(near.exit_code, 0);
    EXPECT_TRUE(
        toy::contains(near.out, "15 tensors equal within rtol 0.2, 14 of them bit-equal\n"));
}

TEST_F(ToolTest, DiffIsOfBitsAndToleranceOfValues) {
    const fs::path a = save_run("a", {});
    const fs::path b = save_run("b", {});
    const std::string words = "diff " + a.string() + " " + b.string();
    set_element(a, State::kModel, "scale", 0, 0.0f);
    set_element(b, State::kModel, "scale", 0, -0.0f);
    EXPECT_EQ(run(words).exit_code, 1);
    EXPECT_EQ(run(words + " --rtol 0").exit_code, 0);
    set_element(b, State::kModel, "scale", 0, std::numeric_limits<float>::quiet_NaN());
    const Result result = run(words + " --rtol 1000");
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_TRUE(toy::contains(result.out, "max abs inf"));
    set_element(a, State::kModel, "scale", 0, -std::numeric_limits<float>::quiet_NaN());
    EXPECT_EQ(run(words).exit_code, 1);
    EXPECT_EQ(run(words + " --rtol 0").exit_code, 0);
}

TEST_F(ToolTest, MissingTensorsAndOtherShapesAreDifferences) {
    const fs::path a = save_run("a", {});
    const fs::path b = save_run("b", {});
    toy::rewrite_manifest(b, [&](Manifest& manifest) {
        manifest.tensors[0].shape = {5, 7};
        manifest.tensors[4].parameter = "gain";
    });
    const Result result = run("diff " + a.string() + " " + b.string());
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_TRUE(toy::contains(result.out, "/model/scale                   only in A\n"));
    EXPECT_TRUE(toy::contains(result.out, "/model/gain                    only in B\n"));
    EXPECT_TRUE(toy::contains(result.out,
                              "/model/token_embedding.weight  shape [7, 5] in A, [5, 7] in B\n"));
    EXPECT_TRUE(toy::contains(result.out, "3 tensors differ, 13 have equal names and shapes\n"));
}

TEST_F(ToolTest, DiffKnowsThatFrozenParametersHaveNoMoments) {
    const std::string all = save_run("all", {}).string();
    const std::string some = save_run("some", {.frozen = {"scale"}}).string();
    const Result result = run("diff " + some + " " + all);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_TRUE(toy::contains(result.out,
                              "/optimizer/exp_avg/scale     only in B: frozen in A\n"
                              "/optimizer/exp_avg_sq/scale  only in B: frozen in A\n"
                              "2 tensors differ, 13 have equal names and shapes\n"));
    const Result same =
        run("diff " + some + " " + save_run("again", {.ranks = 3, .frozen = {"scale"}}).string());
    EXPECT_EQ(same.exit_code, 0);
    EXPECT_TRUE(toy::contains(same.out, "13 tensors bit-equal\n"));
}

TEST_F(ToolTest, ConsolidatedFilesCompareToTheirCheckpoint) {
    const fs::path saved = save_run("run", {.ranks = 3});
    for (const char* name : {"model.h5", "model.safetensors"}) {
        const std::string out = (folder_.path() / name).string();
        const std::string words =
            "consolidate " + (folder_.path() / "run").string() + " --out " + out;
        const Result made = run(words);
        EXPECT_EQ(made.exit_code, 0) << made.error;
        EXPECT_EQ(made.out, out + ": model weights of " + saved.string() + "\n");
        expect_usage_error("consolidate " + saved.string() + " --out " + out,
                           "exists: choose another name, or --force to replace it");
        EXPECT_EQ(run(words + " --force").exit_code, 0);
        const Result same = run("diff " + out + " " + saved.string());
        EXPECT_EQ(same.exit_code, 0);
        EXPECT_TRUE(toy::contains(same.out, "not compared: optimizer/exp_avg, which only B has\n"));
        EXPECT_TRUE(toy::contains(same.out, "5 tensors bit-equal\n"));
    }
    EXPECT_EQ(run("diff " + (folder_.path() / "model.h5").string() + " " +
                  (folder_.path() / "model.safetensors").string())
                  .exit_code,
              0);
}

TEST_F(ToolTest, DiffOfADamagedCheckpointIsAnErrorAndNoDifference) {
    const fs::path a = save_run("a", {});
    const fs::path b = save_run("b", {});
    toy::flip_bit(b / kStateFile, open_folder(b).tensors[0].parts[0].file_offset);
    const Result result = run("diff " + a.string() + " " + b.string());
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_TRUE(toy::contains(result.error, "damaged"));
}

TEST_F(ToolTest, InspectAsJsonIsTheManifestWithoutPlaces) {
    const fs::path saved = save_run("run", {.ranks = 3});
    const auto json = nlohmann::json::parse(run("inspect --json " + saved.string()).out);
    EXPECT_EQ(json.at("checkpoint"), saved.string());
    EXPECT_TRUE(json.at("damage").empty());
    EXPECT_EQ(json.at("progress").at("step"), 10);
    EXPECT_EQ(json.at("tensors").size(), 15u);
    EXPECT_FALSE(json.at("tensors")[0].contains("blocks"));
    toy::write_text(saved / kDeckFile, "other");
    const Result damaged = run("inspect --json " + saved.string());
    EXPECT_EQ(damaged.exit_code, 3);
    EXPECT_EQ(nlohmann::json::parse(damaged.out).at("damage").size(), 1u);
}

TEST_F(ToolTest, ThreadsDoNotChangeWhatIsFound) {
    const fs::path saved = save_run("run", {});
    for (const char* name : {"scale", "layers.0.convolution"}) {
        toy::flip_bit(saved / kStateFile,
                      open_folder(saved).tensor(State::kModel, name).parts[0].file_offset);
    }
    const std::string one = run("verify --threads 1 " + saved.string()).out;
    EXPECT_EQ(std::ranges::count(one, '\n'), 2);
    EXPECT_EQ(run("verify --threads 7 " + saved.string()).out, one);
    expect_usage_error("verify --threads 0 a", "--threads 0: must be a whole number from 1 to 256");
}

TEST_F(ToolTest, ConsolidateOptionsAreChecked) {
    const std::string words = "consolidate a --out b.h5 ";
    expect_usage_error(words + "--dtype int8", "--dtype int8: must be fp32, bf16 or fp16");
    expect_usage_error(words + "--format npz",
                       "--format npz: must be hdf5, safetensors, pt, hf or llmc");
    expect_usage_error(words + "--memory much", "--memory much: must be a size");
    expect_usage_error(words + "--max-shard 9999999T", "--max-shard 9999999T: must be a size");
    expect_usage_error("import a", "--out is missing");
    expect_usage_error("import a --out b --dtype bf16", "unknown option --dtype");
}

TEST_F(ToolTest, ImportedWeightsAreACheckpointThatConsolidatesToTheSameFile) {
    const std::string saved = save_run("run", {.ranks = 3}).string();
    const std::string first = (folder_.path() / "first.safetensors").string();
    const std::string again = (folder_.path() / "again.safetensors").string();
    const std::string seed = (folder_.path() / "seed").string();
    ASSERT_EQ(run("consolidate " + saved + " --out " + first).exit_code, 0);
    const Result made = run("import " + first + " --out " + seed);
    EXPECT_EQ(made.out, seed + "/step-00000000: weights of " + first + ", names as they are\n");
    EXPECT_EQ(run("verify " + seed).exit_code, 0);
    EXPECT_TRUE(toy::contains(run("inspect " + seed).out, "moments          none"));
    ASSERT_EQ(run("consolidate " + seed + " --out " + again).exit_code, 0);
    EXPECT_EQ(read_file(first), read_file(again));
}

TEST_F(ToolTest, TasksOfAStepShareTheShards) {
    const std::string saved = save_run("run", {}).string();
    const std::string words =
        "consolidate " + saved + " --max-shard 320 --out " + (folder_.path() / "m").string();
    setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    setenv("SLURM_PROCID", "1", 1);
    const Result second = run(words + ".safetensors");
    setenv("SLURM_PROCID", "0", 1);
    const Result first = run(words + ".safetensors");
    unsetenv("SLURM_STEP_NUM_TASKS");
    const Result batch_script = run(words + "2.safetensors");
    unsetenv("SLURM_PROCID");
    EXPECT_TRUE(toy::contains(second.out, "other tasks write the rest"));
    EXPECT_EQ(std::ranges::count(second.out, '\n'), 2) << second.error;
    EXPECT_TRUE(toy::contains(first.out, "m.safetensors.index.json: model weights of"));
    EXPECT_TRUE(fs::exists(folder_.path() / "m2.safetensors.index.json"));
}

}  // namespace
}  // namespace fullshard::checkpoint
