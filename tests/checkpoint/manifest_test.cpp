#include "checkpoint/format/manifest.h"

#include "base/error.h"
#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace fullshard::checkpoint {
namespace {

using Json = nlohmann::json;

Manifest example() {
    Manifest manifest{
        .progress = {.step = 12, .optimizer_step = 11, .tokens = 99, .samples = 77},
        .seed = 0xffffffffffffffff,
        .global_batch = 8,
        .numerics = {.reduce_order = "tree", .threads = 2, .cpu_capability = "AVX2"},
        .writer = {.version = "1.2.3", .git_hash = "abc", .ranks = 3, .strategy = "full"},
        .effective_deck = "[run]\ndir = \"caf\xc3\xa9\"\n",
        .architecture = R"({"model_type": "gpt2"})",
        .data_fingerprint = 0xfedcba9876543210,
        .files = {{.name = "state.h5", .bytes = 1000, .structure_digest = 0x00000000000000ff}},
        .tensors = {}};
    manifest.tensors = {{.parameter = "a",
                         .state = State::kModel,
                         .shape = {3, 4},
                         .parts = {{.count = 12, .file_offset = 100}},
                         .blocks = {{0, 5, 1}, {5, 7, 0x8000000000000000}}},
                        {.parameter = "a",
                         .state = State::kSecondMoment,
                         .shape = {},
                         .parts = {{.count = 1, .file_offset = 148}},
                         .blocks = {{0, 1, 3}}}};
    return manifest;
}

std::string parse_error(const std::string& text) {
    return toy::error_of([&] { parse_manifest(text, "ORIGIN"); });
}

/// The error after `change` of the example's JSON.
std::string changed(const std::function<void(Json&)>& change) {
    Json document = Json::parse(to_json(example()));
    change(document);
    return parse_error(document.dump());
}

TEST(Manifest, SurvivesJson) {
    EXPECT_EQ(parse_manifest(to_json(example()), "text"), example());
}

/// Earlier releases did not write the field, and other families have none.
TEST(Manifest, ThoseOfEarlierReleasesSayLess) {
    Json document = Json::parse(to_json(example()));
    document.erase("architecture");
    document.erase("data_fingerprint");
    Manifest expected = example();
    expected.architecture.clear();
    expected.data_fingerprint = 0;
    EXPECT_EQ(parse_manifest(document.dump(), "ORIGIN"), expected);
    EXPECT_TRUE(toy::contains(changed([](Json& json) { json["architecture"] = 1; }),
                              "architecture must be a text"));
}

TEST(Manifest, LossScalerSurvivesJson) {
    Manifest manifest = example();
    manifest.progress.skipped_steps = 3;
    manifest.progress.loss_scaler = {.scale = 0x1p-3, .good_steps = 17, .hysteresis_left = 2};
    EXPECT_EQ(parse_manifest(to_json(manifest), "text"), manifest);
    EXPECT_EQ(Json::parse(to_json(manifest))["progress"], Json::parse(R"({
        "step": 12, "optimizer_step": 11, "skipped_steps": 3, "tokens": 99, "samples": 77,
        "loss_scaler": {"scale": 0.125, "good_steps": 17, "hysteresis_left": 2}})"));
}

TEST(Manifest, AnEvaluationThatIsStillToCome) {
    Manifest manifest = example();
    EXPECT_FALSE(Json::parse(to_json(manifest))["progress"].contains("evaluation_pending"));
    manifest.progress.evaluation_pending = true;
    EXPECT_EQ(parse_manifest(to_json(manifest), "text"), manifest);
    EXPECT_EQ(changed([](Json& json) { json["progress"]["evaluation_pending"] = 1; }),
              "ORIGIN: progress.evaluation_pending must be true or false");
}

TEST(Manifest, OlderReleasesWroteNoSkippedStepsAndNoScaler) {
    Json document = Json::parse(to_json(example()));
    EXPECT_FALSE(document["progress"].contains("loss_scaler"));
    document["progress"].erase("skipped_steps");
    EXPECT_EQ(parse_manifest(document.dump(), "text"), example());
}

TEST(Manifest, IsAsFormatMdSays) {
    const Json document = Json::parse(to_json(example()));
    EXPECT_EQ(document["format"], "fullshard-checkpoint");
    EXPECT_EQ(document["format_version"], 1);
    EXPECT_EQ(document["files"], Json::parse(R"([{"name": "state.h5", "bytes": 1000,
                                                  "structure_digest": "00000000000000ff"}])"));
    EXPECT_EQ(document["tensors"][0], Json::parse(R"({"parameter": "a", "state": "model",
        "shape": [3, 4], "parts": [[0, 0, 12, 100]],
        "blocks": [[0, 5, "0000000000000001"], [5, 7, "8000000000000000"]]})"));
    EXPECT_EQ(document["tensors"][1]["state"], "optimizer/exp_avg_sq");
    EXPECT_EQ(document["tensors"][1]["shape"], Json::array());
}

TEST(Manifest, FieldsAddedLaterAreIgnored) {
    EXPECT_EQ(changed([](Json& json) { json["note"] = {1, 2}; }), "no error");
}

TEST(Manifest, OtherTextIsRefused) {
    EXPECT_EQ(parse_error("{"), "ORIGIN: is no JSON");
    EXPECT_EQ(parse_error("[]"), "ORIGIN: it must be an object");
    EXPECT_EQ(parse_error("{}"), "ORIGIN: format is missing");
    EXPECT_EQ(changed([](Json& json) { json["format"] = "zip"; }),
              "ORIGIN: format is no FullShard checkpoint");
}

TEST(Manifest, OtherVersionIsNamedBeforeAnythingElse) {
    EXPECT_EQ(changed([](Json& json) {
                  json = {{"format", json["format"]}, {"format_version", 2}};
              }),
              "ORIGIN: format_version is 2; this program reads version 1 (use the release that "
              "wrote it)");
}

TEST(Manifest, EveryFieldIsNeeded) {
    const Json whole = Json::parse(to_json(example()));
    int fields = 0;
    const std::function<void(const Json::json_pointer&)> visit = [&](const Json::json_pointer& at) {
        for (const auto& [key, value] : whole.at(at).items()) {
            // Older releases did not write them.
            if (key == "skipped_steps" || key == "architecture" || key == "data_fingerprint")
                continue;
            Json without = whole;
            without.at(at).erase(key);
            EXPECT_TRUE(toy::contains(parse_error(without.dump()), key + " is missing"));
            ++fields;
            if (value.is_object()) visit(at / key);
        }
    };
    visit(Json::json_pointer());
    visit(Json::json_pointer("/files/0"));
    visit(Json::json_pointer("/tensors/0"));
    EXPECT_EQ(fields, 29);
}

TEST(Manifest, WrongTypesNameTheField) {
    EXPECT_EQ(changed([](Json& json) { json["progress"]["step"] = -1; }),
              "ORIGIN: progress.step must be a whole number, zero or more");
    EXPECT_EQ(changed([](Json& json) { json["progress"]["step"] = 1.5; }),
              "ORIGIN: progress.step must be a whole number, zero or more");
    EXPECT_EQ(changed([](Json& json) { json["progress"]["step"] = 0xffffffffffffffff; }),
              "ORIGIN: progress.step is too large");
    const auto scaler = [](Json scale) {
        return changed([&](Json& json) {
            json["progress"]["loss_scaler"] = {
                {"scale", std::move(scale)}, {"good_steps", 0}, {"hysteresis_left", 1}};
        });
    };
    EXPECT_EQ(scaler(65536), "no error");
    EXPECT_EQ(scaler("2"), "ORIGIN: progress.loss_scaler.scale must be a number");
    EXPECT_EQ(scaler(0.0), "ORIGIN: progress.loss_scaler.scale must be a power of two");
    EXPECT_EQ(scaler(-2), "ORIGIN: progress.loss_scaler.scale must be a power of two");
    EXPECT_EQ(scaler(3), "ORIGIN: progress.loss_scaler.scale must be a power of two");
    EXPECT_EQ(changed([](Json& json) {
                  json["progress"]["loss_scaler"] = {{"scale", 2.0}};
              }),
              "ORIGIN: progress.loss_scaler.hysteresis_left is missing");
    EXPECT_EQ(changed([](Json& json) { json["writer"]["version"] = 1; }),
              "ORIGIN: writer.version must be a text");
    EXPECT_EQ(changed([](Json& json) { json["files"][0]["name"] = "../other.h5"; }),
              "ORIGIN: files[0].name must be state.h5");
    EXPECT_EQ(changed([](Json& json) { json["tensors"] = 3; }), "ORIGIN: tensors must be a list");
    EXPECT_EQ(changed([](Json& json) { json["tensors"][1]["state"] = "exp_avg"; }),
              "ORIGIN: tensors[1].state 'exp_avg' is no known state");
    EXPECT_EQ(changed([](Json& json) {
                  json["tensors"][0]["blocks"][1] = {5, 7};
              }),
              "ORIGIN: tensors[0].blocks[1] must be [begin, count, digest]");
    for (const char* digest :
         {"", "1", "00000000000000FF", "0x000000000000ff", "00000000000000ff0"}) {
        EXPECT_EQ(changed([&](Json& json) { json["files"][0]["structure_digest"] = digest; }),
                  "ORIGIN: files[0].structure_digest must be 16 lower-case hexadecimal digits");
    }
}

/// The error for a manifest that a faulty writer might make.
std::string written(const std::function<void(Manifest&)>& change) {
    Manifest manifest = example();
    change(manifest);
    return parse_error(to_json(manifest));
}

TEST(Manifest, BlocksCoverEveryElementOnce) {
    EXPECT_EQ(written([](Manifest& m) { m.tensors[0].blocks.pop_back(); }),
              "ORIGIN: tensor /model/a: no block covers elements [5, 12)");
    EXPECT_EQ(written([](Manifest& m) { m.tensors[0].blocks.erase(m.tensors[0].blocks.begin()); }),
              "ORIGIN: tensor /model/a: no block covers elements [0, 5)");
    EXPECT_EQ(written([](Manifest& m) { m.tensors[0].blocks[0].count = 6; }),
              "ORIGIN: tensor /model/a: elements from 5 on are covered twice");
    EXPECT_EQ(written([](Manifest& m) { m.tensors[0].blocks[1].count = 8; }),
              "ORIGIN: tensor /model/a: the block at element 5 reaches past its 12 elements");
    EXPECT_EQ(written([](Manifest& m) { m.tensors[0].blocks[0].count = 0; }),
              "ORIGIN: tensor /model/a: the block at element 0 has 0 elements");
}

TEST(Manifest, BlocksFitTheReadersBuffer) {
    EXPECT_EQ(written([](Manifest& m) {
                  m.files[0].bytes = 10 << 20;
                  m.tensors.pop_back();
                  m.tensors[0].shape = {(1 << 20) + 1};
                  m.tensors[0].parts[0].count = (1 << 20) + 1;
                  m.tensors[0].blocks = {{0, (1 << 20) + 1, 0}};
              }),
              "ORIGIN: tensor /model/a: the block at element 0 has 1048577 elements");
}

TEST(Manifest, DataLiesInsideTheFileWithoutOverlap) {
    EXPECT_EQ(
        written([](Manifest& m) { m.files[0].bytes = 151; }),
        "ORIGIN: tensor /optimizer/exp_avg_sq/a: 4 bytes at 148 lie outside the 151 of state.h5");
    EXPECT_EQ(written([](Manifest& m) { m.tensors[1].parts[0].file_offset = 147; }),
              "ORIGIN: tensors /model/a and /optimizer/exp_avg_sq/a overlap in the file");
}

TEST(Manifest, NamesAreUniqueAndPossible) {
    EXPECT_EQ(written([](Manifest& m) { m.tensors[1].state = State::kModel; }),
              "ORIGIN: tensor /model/a is listed twice");
    for (const char* name : {"", ".", "a/b"}) {
        EXPECT_TRUE(toy::contains(written([&](Manifest& m) { m.tensors[0].parameter = name; }),
                                  "is no name of a dataset"));
    }
}

TEST(Manifest, ShapesArePossible) {
    EXPECT_EQ(written([](Manifest& m) {
                  m.tensors[0].shape = {3, 0};
              }),
              "ORIGIN: tensor /model/a: shape [3, 0] is not possible");
    const std::int64_t huge = std::int64_t{1} << 40;
    EXPECT_TRUE(toy::contains(written([&](Manifest& m) {
                                  m.tensors[0].shape = {huge, huge};
                              }),
                              "is not possible"));
}

TEST(Manifest, TextThatIsNotUtf8IsRefused) {
    Manifest manifest = example();
    manifest.effective_deck = "\xff";
    EXPECT_THROW(to_json(manifest), UsageError);
}

TEST(Manifest, FindsTensorsByStateAndName) {
    const Manifest manifest = example();
    EXPECT_EQ(&manifest.tensor(State::kSecondMoment, "a"), &manifest.tensors[1]);
    EXPECT_EQ(toy::error_of([&] { manifest.tensor(State::kFirstMoment, "a"); }),
              "the checkpoint has no tensor /optimizer/exp_avg/a");
}

}  // namespace
}  // namespace fullshard::checkpoint
