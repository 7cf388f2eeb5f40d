// fullshard-ckpt between FullShard and other programs.
#include "base/files.h"
#include "checkpoint/foreign_files.h"
#include "checkpoint/tool_runner.h"

#include <filesystem>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;
using toy::Result;

class ToolExchangeTest : public toy::ToolRunner {
  protected:
    std::string place(const std::string& name) const { return (folder_.path() / name).string(); }
};

TEST_F(ToolExchangeTest, ImportShowsTheMappingAndExportWritesAFolder) {
    toy::write_safetensors(place("model.safetensors"), toy::of_transformers(toy::small_gpt2()));
    toy::write_text(place("config.json"), spec::to_hf_config(toy::small_gpt2()));
    toy::write_text(place("merges.txt"), "a b");
    const Result imported = run("import " + folder_.path().string() + " --out " +
                                place("run/checkpoints") + " --show-mapping");
    EXPECT_EQ(imported.exit_code, 0) << imported.error;
    EXPECT_TRUE(toy::contains(imported.out, "transformer.h.{0..1}.mlp.c_fc.weight [16, 4]"));
    EXPECT_TRUE(toy::contains(imported.out, "transposed"));
    EXPECT_TRUE(toy::contains(imported.out, "run/tokenizer/merges.txt: goes with them"));
    EXPECT_TRUE(toy::contains(run("inspect " + place("run")).out, "model            gpt2"));

    const Result exported =
        run("consolidate " + place("run") + " --out " + place("hf") + " --format hf");
    EXPECT_EQ(exported.exit_code, 0) << exported.error;
    EXPECT_TRUE(toy::contains(exported.out, "hf/config.json: goes with them"));
    EXPECT_EQ(read_file(place("hf/merges.txt")), "a b");
    const Result diff =
        run("diff " + place("model.safetensors") + " " + place("hf/model.safetensors"));
    EXPECT_EQ(diff.exit_code, 0) << diff.out;

    const Result llmc =
        run("consolidate " + place("run") + " --out " + place("m.bin") + " --format llmc");
    EXPECT_EQ(llmc.exit_code, 0) << llmc.error;
    EXPECT_EQ(run("import " + place("m.bin") + " --out " + place("again")).exit_code, 0);
}

TEST_F(ToolExchangeTest, ConfigMayLieElsewhere) {
    toy::write_safetensors(place("m.safetensors"), toy::of_transformers(toy::small_llama()));
    toy::write_text(place("llama.json"), spec::to_hf_config(toy::small_llama()));
    const std::string words = "import " + place("m.safetensors") + " --out " + place("run");
    expect_usage_error(words + " --show-mapping", "--config FILE names its config.json");
    const Result plain = run(words);
    EXPECT_TRUE(toy::contains(plain.out, "names as they are"));
    EXPECT_EQ(run(words + " --force --config " + place("llama.json")).exit_code, 0);
    EXPECT_EQ(
        run("consolidate " + place("run") + " --out " + place("hf") + " --format hf").exit_code, 0);
    EXPECT_TRUE(toy::contains(
        run("consolidate " + place("run") + " --out " + place("m.bin") + " --format llmc").error,
        "for GPT-2 only"));
    expect_usage_error("consolidate " + place("run/step-00000000") + " --out " + place("m.h5") +
                           " --tokenizer " + place(""),
                       "--tokenizer goes with --format hf");
}

TEST_F(ToolExchangeTest, WhatDoesNotFitIsExitCodeThree) {
    toy::write_safetensors(place("model.safetensors"), toy::of_transformers(toy::small_llama()));
    spec::Llama other = toy::small_llama();
    other.num_layers = 3;
    toy::write_text(place("config.json"), spec::to_hf_config(other));
    const Result result = run("import " + folder_.path().string() + " --out " + place("run"));
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_TRUE(toy::contains(result.error, "model.layers.2.mlp.up_proj.weight is missing"));
    EXPECT_FALSE(fs::exists(place("run")));
}

}  // namespace
}  // namespace fullshard::checkpoint
