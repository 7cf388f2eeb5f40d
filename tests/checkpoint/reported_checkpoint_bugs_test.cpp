// What users of other trainers reported of their checkpoints, each test named after the symptom.
#include "base/error.h"
#include "base/files.h"
#include "checkpoint/export/consolidate.h"
#include "checkpoint/export/import.h"
#include "checkpoint/format/data_files.h"
#include "checkpoint/format/fit.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/posix_file.h"
#include "checkpoint/format/reader.h"
#include "checkpoint/format/state_file.h"
#include "checkpoint/format/verify.h"
#include "checkpoint/format/weights.h"
#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>
#include <hdf5.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

class ReportedCheckpointBugs : public testing::Test {
  protected:
    fs::path out(const std::string& name) const { return folder_.path() / name; }
    /// A parameter of the toy checkpoint and what it should be.
    struct Weight {
        std::string name;
        std::vector<std::int64_t> shape;
        std::vector<float> values;
    };
    static std::vector<Weight> weights() {
        std::vector<Weight> weights;
        for (const TensorEntry& tensor : toy::tensors()) {
            if (tensor.state != State::kModel) continue;
            weights.push_back({tensor.parameter, tensor.shape, toy::values(tensor, 10)});
        }
        return weights;
    }
    static std::vector<NamedShape> model() {
        std::vector<NamedShape> model;
        for (const Weight& weight : weights()) model.push_back({weight.name, weight.shape});
        return model;
    }
    static std::string damages(const fs::path& folder) {
        std::string lines;
        verify_folder(folder, [&](const std::string& problem) { lines += problem + "\n"; }, {});
        return lines;
    }
    static nlohmann::json safetensors_header(const fs::path& path) {
        const std::string bytes = read_file(path);
        std::uint64_t length = 0;
        std::memcpy(&length, bytes.data(), sizeof length);
        return nlohmann::json::parse(bytes.substr(sizeof length, length));
    }

    toy::TemporaryFolder folder_;
    fs::path parent_ = folder_.path() / "checkpoints";
};

// https://github.com/verl-project/verl/issues/7952: a tracker file that was never written made a
// resumed run begin at step 0 and overwrite the checkpoints.
TEST_F(ReportedCheckpointBugs, TrackerThatIsMissingStaleOrEmptyDecidesNothing) {
    toy::save(parent_, {.step = 5});
    const fs::path newest = toy::save(parent_, {.step = 10});
    EXPECT_EQ(find_latest(parent_).folder, newest);
    for (const char* text : {"step-00000005", "", "rubbish"}) {
        for (const char* name : {"latest", "latest_checkpointed_iteration.txt"}) {
            toy::write_text(parent_ / name, text);
        }
        EXPECT_EQ(find_latest(parent_).folder, newest) << text;
        EXPECT_TRUE(find_latest(parent_).skipped.empty()) << text;
    }
}

// https://github.com/huggingface/transformers/issues/27138,
// https://github.com/huggingface/accelerate/issues/1163: names sorted as text kept 9900 and deleted
// 10000. Ours have eight digits, so that the ninth is where text and number part.
TEST_F(ReportedCheckpointBugs, OneDigitMoreIsNotOlder) {
    const fs::path older = toy::save(parent_, {.step = 99'999'999});
    const fs::path newer = toy::save(parent_, {.step = 100'000'000});
    ASSERT_LT(newer.filename().string(), older.filename().string());
    EXPECT_EQ(find_latest(parent_).folder, newer);
    EXPECT_EQ(retain(parent_, {.keep_last = 1}, newer), std::vector<fs::path>{older});
    EXPECT_TRUE(fs::exists(newer));
}

// https://github.com/pytorch/torchtitan/pull/3732, https://github.com/pytorch/torchtitan/pull/1311:
// the step that was asked for was not there, and training began afresh without a word.
TEST_F(ReportedCheckpointBugs, StepThatIsNotThereIsAnErrorAndNoFreshStart) {
    toy::write_state(begin_save(parent_, 10), {});
    const std::string only_partial = toy::error_of([&] { locate_checkpoint(parent_); });
    EXPECT_TRUE(toy::contains(only_partial, "step-00000010.tmp is an unfinished save"));
    toy::save(parent_, {.step = 20});
    EXPECT_THROW(locate_checkpoint(parent_ / folder_name(30)), DataError);
    EXPECT_TRUE(toy::contains(toy::error_of([&] { locate_checkpoint(parent_ / folder_name(30)); }),
                              "step-00000030"));
}

// https://github.com/pytorch/pytorch/issues/126881,
// https://github.com/pytorch/pytorch/issues/148252: missing keys failed oddly, extra keys were
// passed over.
TEST_F(ReportedCheckpointBugs, RenamedParameterIsListedUnderBothNames) {
    const Manifest manifest = open_folder(toy::save(parent_));
    std::vector<NamedShape> renamed = model();
    const auto bias = std::ranges::find(renamed, "layers.0.linear1.bias", &NamedShape::parameter);
    bias->parameter = "layers.0.linear1.offset";
    const std::string error = toy::error_of([&] { check_state(manifest, renamed, "ORIGIN"); });
    EXPECT_TRUE(toy::contains(error, "layers.0.linear1.offset is missing"));
    EXPECT_TRUE(toy::contains(error, "layers.0.linear1.bias is not in the model"));
}

// NVIDIA/Megatron-LM, docs/user-guide/features/megatron_fsdp.md: a weight that the file lacks
// silently keeps its initial value.
TEST_F(ReportedCheckpointBugs, WeightDeletedFromTheFileIsNoInitialValue) {
    const fs::path saved = toy::save(parent_);
    const auto restructure = [&](Manifest& manifest) {
        manifest.files = {read_structure(saved / kStateFile, manifest.tensors)};
    };
    const hid_t file = H5Fopen((saved / kStateFile).c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Ldelete(file, "/model/scale", H5P_DEFAULT);
    H5Fclose(file);
    EXPECT_TRUE(toy::contains(damages(saved), "HDF5's structures are damaged"));
    toy::rewrite_manifest(saved, restructure);
    EXPECT_TRUE(toy::contains(damages(saved), "/model/scale"));

    toy::rewrite_manifest(saved, [&](Manifest& manifest) {
        std::erase_if(manifest.tensors, [](const TensorEntry& tensor) {
            return tensor.state == State::kModel && tensor.parameter == "scale";
        });
        restructure(manifest);
    });
    CheckpointReader reader(saved);
    EXPECT_TRUE(
        toy::contains(toy::error_of([&] { check_state(reader.manifest(), model(), "ORIGIN"); }),
                      "scale is missing"));
    std::vector<float> value(1);
    EXPECT_THROW(reader.read(State::kModel, "scale", 0, value), DataError);
}

// https://github.com/TensorAuto/OpenTau/issues/184: moments of another type were cast without a
// word. Ours are float32 in every checkpoint.
TEST_F(ReportedCheckpointBugs, MomentsOfAnotherTypeAreRefused) {
    const fs::path saved = toy::save(parent_);
    const char* const name = "/optimizer/exp_avg/scale";
    const hid_t file = H5Fopen((saved / kStateFile).c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Ldelete(file, name, H5P_DEFAULT);
    const hid_t space = H5Screate(H5S_SCALAR);
    const hid_t dataset =
        H5Dcreate2(file, name, H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    const std::int32_t one = 1;
    H5Dwrite(dataset, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, &one);
    const auto offset = static_cast<std::int64_t>(H5Dget_offset(dataset));
    H5Dclose(dataset);
    H5Sclose(space);
    H5Fclose(file);
    toy::rewrite_manifest(saved, [&](Manifest& manifest) {
        for (TensorEntry& tensor : manifest.tensors) {
            if (dataset_path(tensor.state, tensor.parameter) != name) continue;
            tensor.parts[0].file_offset = offset;
            tensor.blocks[0].digest = digest(&one, sizeof one);
        }
        manifest.files = {read_structure(saved / kStateFile, manifest.tensors)};
    });
    EXPECT_TRUE(toy::contains(damages(saved), std::string(name) + ": is no little-endian float32"));
}

// https://github.com/huggingface/accelerate/issues/3971,
// https://github.com/pytorch/torchtitan/pull/3356: optimizer state was assigned by position.
TEST_F(ReportedCheckpointBugs, StateIsFoundByNameAndNotByPlace) {
    const fs::path saved = toy::save(parent_, {.ranks = 3});
    toy::rewrite_manifest(saved,
                          [](Manifest& manifest) { std::ranges::reverse(manifest.tensors); });
    CheckpointReader reader(saved);
    EXPECT_EQ(toy::error_of([&] { check_state(reader.manifest(), model(), "ORIGIN"); }),
              "no error");
    for (const TensorEntry& tensor : toy::tensors()) {
        std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
        reader.read(tensor.state, tensor.parameter, 0, values);
        EXPECT_EQ(values, toy::values(tensor, 10)) << tensor.parameter;
    }
}

// https://github.com/deepspeedai/DeepSpeed/pull/3205,
// https://github.com/deepspeedai/DeepSpeed/pull/4396,
// https://github.com/deepspeedai/DeepSpeed/issues/3841: consolidated files held frozen parameters,
// or all of them, with size 0.
TEST_F(ReportedCheckpointBugs, FrozenParametersAreExportedWithFullShapes) {
    const fs::path saved = toy::save(
        parent_, {.ranks = 3, .frozen = {"token_embedding.weight", "layers.0.convolution"}});
    for (const char* name : {"model.h5", "model.safetensors"}) {
        consolidate(saved, out(name));
        const auto exported = open_weights(out(name));
        EXPECT_EQ(exported->tensors().size(), weights().size());
        for (const Weight& weight : weights()) {
            const auto found =
                std::ranges::find(exported->tensors(), weight.name, &WeightsSource::Tensor::name);
            ASSERT_NE(found, exported->tensors().end()) << weight.name;
            EXPECT_EQ(found->shape, weight.shape) << weight.name;
            std::vector<float> values(weight.values.size());
            exported->read(weight.name, 0, values);
            EXPECT_EQ(values, weight.values) << weight.name;
        }
    }
}

// https://github.com/deepspeedai/DeepSpeed/pull/3033: tensors that shared an address, or bytes,
// were written as one, which was not always the right one.
TEST_F(ReportedCheckpointBugs, EqualTensorsAreNotTakenForTied) {
    std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                         R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const std::array<float, 4> data = {1, 2, 1, 2};
    const std::uint64_t length = header.size();
    std::string bytes(sizeof length + header.size() + sizeof data, '\0');
    std::memcpy(bytes.data(), &length, sizeof length);
    std::ranges::copy(header, bytes.begin() + sizeof length);
    std::memcpy(bytes.data() + sizeof length + header.size(), data.data(), sizeof data);
    toy::write_text(out("source.safetensors"), bytes);

    const fs::path imported = import_weights(out("source.safetensors"), parent_).folder;
    for (const char* name : {"model.h5", "model.safetensors"}) {
        consolidate(imported, out(name));
        const auto exported = open_weights(out(name));
        EXPECT_EQ(exported->tensors().size(), 2u) << name;
        for (const char* parameter : {"a", "b"}) {
            std::vector<float> values(2);
            exported->read(parameter, 0, values);
            EXPECT_EQ(values, (std::vector<float>{1, 2})) << name << " " << parameter;
        }
    }
}

// https://github.com/pytorch/torchtitan/pull/4166: the type asked for was not the file's, from bf16
// to fp32 above all.
TEST_F(ReportedCheckpointBugs, ExportHasTheTypeThatWasAskedFor) {
    const fs::path saved = toy::save(parent_);
    consolidate(saved, out("bf16.safetensors"), {.dtype = DType::kBFloat16});
    const fs::path narrow =
        import_weights(out("bf16.safetensors"), folder_.path() / "narrow").folder;
    const std::pair<DType, const char*> types[] = {
        {DType::kFloat32, "F32"}, {DType::kBFloat16, "BF16"}, {DType::kFloat16, "F16"}};
    for (const fs::path& source : {saved, narrow}) {
        for (const auto& [dtype, name] : types) {
            consolidate(source, out("model.safetensors"), {.dtype = dtype, .overwrite = true});
            const auto header = safetensors_header(out("model.safetensors"));
            consolidate(source, out("model.h5"), {.dtype = dtype, .overwrite = true});
            const StateFile hdf5 = StateFile::open(out("model.h5"));
            for (const Weight& weight : weights()) {
                EXPECT_EQ(header.at(weight.name)["dtype"], name) << weight.name;
                EXPECT_EQ(hdf5.dtype("/" + weight.name), dtype) << weight.name;
            }
        }
    }
}

/// Files of this process may not grow beyond a size while it lives, as under a quota.
class FileSizeLimit {
  public:
    explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
        ::getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit{bytes, before_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FileSizeLimit() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }
    FileSizeLimit(const FileSizeLimit&) = delete;
    FileSizeLimit& operator=(const FileSizeLimit&) = delete;

  private:
    rlimit before_{};
    void (*handler_)(int);
};

// https://github.com/open-mmlab/mmdetection/issues/12069,
// https://github.com/facebookresearch/metaseq/issues/53: a quota was met though the disk had room,
// and short files were left under their final names.
TEST_F(ReportedCheckpointBugs, QuotaOnADiskWithRoomNamesTheFileAndLeavesNone) {
    const fs::path saved = toy::save(parent_);
    EXPECT_NO_THROW(require_space(parent_, 1 << 20));  // the disk has room
    for (const char* name : {"model.safetensors", "model.pt"}) {
        std::string error;
        {
            const FileSizeLimit quota(600);
            error = toy::error_of([&] { consolidate(saved, out(name)); });
        }
        EXPECT_TRUE(toy::contains(error, name));
        EXPECT_TRUE(toy::contains(error, "File too large"));
        EXPECT_FALSE(fs::exists(out(name))) << name;
    }
    // Found when the space is claimed, before anything is written.
    PosixFile state = PosixFile::create(out("state"));
    const std::vector<std::byte> bytes(1000);
    std::string claiming, writing;
    {
        const FileSizeLimit quota(600);
        claiming = toy::error_of([&] { state.reserve(1000); });
        writing = toy::error_of([&] { state.write_at(600, bytes); });
    }
    EXPECT_TRUE(toy::contains(claiming, out("state").string() + ": File too large"));
    EXPECT_TRUE(toy::contains(writing, out("state").string() + ": File too large"));
    EXPECT_EQ(state.size(), 0);
}

// https://github.com/h5py/h5py/issues/1082, https://github.com/h5py/h5py/issues/1101,
// https://github.com/open-mpi/ompi/issues/6535: locks on HDF5 files stop readers with obscure
// errors.
TEST_F(ReportedCheckpointBugs, LockOnTheFileStopsNoResumeAndIsNamedToOthers) {
    const fs::path saved = toy::save(parent_);
    const PosixFile other = PosixFile::open_to_write(saved / kStateFile);
    ASSERT_TRUE(other.lock());
    CheckpointReader reader(saved);
    const Weight weight = weights().front();
    std::vector<float> values(weight.values.size());
    reader.read(State::kModel, weight.name, 0, values);
    EXPECT_EQ(values, weight.values);
    const std::string error = toy::error_of([&] { StateFile::open(saved / kStateFile); });
    EXPECT_TRUE(toy::contains(error, (saved / kStateFile).string()));
    EXPECT_TRUE(toy::contains(error, "lock"));
}

// https://github.com/BLAST-WarpX/warpx/pull/1351 and seven more: state that was added to the
// program and not to the restart file. The bindings stop compiling when a member is added; then it
// belongs into the lists below, which fail until the manifest keeps it.
TEST_F(ReportedCheckpointBugs, EveryPartOfTheProgressIsInTheFile) {
    Manifest manifest = open_folder(toy::save(parent_));
    manifest.progress.loss_scaler = LossScalerState{};
    const Progress before = manifest.progress;
    auto& [step, optimizer_step, skipped_steps, tokens, samples, evaluation_pending, loss_scaler] =
        manifest.progress;
    auto& [scale, good_steps, hysteresis_left] = *loss_scaler;
    const auto expect_kept = [&](const char* part) {
        EXPECT_NE(manifest.progress, before) << part;
        EXPECT_EQ(parse_manifest(to_json(manifest), "text").progress, manifest.progress) << part;
        manifest.progress = before;
    };
    for (std::int64_t* count : {&step, &optimizer_step, &skipped_steps, &tokens, &samples,
                                &good_steps, &hysteresis_left}) {
        *count += 3;
        expect_kept("a count");
    }
    evaluation_pending = true;
    expect_kept("evaluation_pending");
    scale = 0x1p15;
    expect_kept("scale");
    loss_scaler.reset();
    expect_kept("loss_scaler");
}

}  // namespace
}  // namespace fullshard::checkpoint
