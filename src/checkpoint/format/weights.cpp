#include "checkpoint/format/weights.h"

#include "base/error.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/gguf_weights.h"
#include "checkpoint/format/llmc_model.h"
#include "checkpoint/format/posix_file.h"
#include "checkpoint/format/reader.h"
#include "checkpoint/format/safetensors_weights.h"
#include "checkpoint/format/state_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;
using Tensors = std::vector<WeightsSource::Tensor>;

class CheckpointWeights : public WeightsSource {
  public:
    explicit CheckpointWeights(const fs::path& folder) : reader_(folder) {
        for (const TensorEntry& tensor : reader_.manifest().tensors) {
            if (tensor.state == State::kModel) tensors_.push_back({tensor.parameter, tensor.shape});
        }
    }
    const Tensors& tensors() const override { return tensors_; }
    void read(std::string_view parameter, std::int64_t begin, std::span<float> out) override {
        reader_.read(State::kModel, parameter, begin, out);
    }

  private:
    CheckpointReader reader_;
    Tensors tensors_;
};

class Hdf5Weights : public WeightsSource {
  public:
    explicit Hdf5Weights(const fs::path& path) : file_(StateFile::open(path)) {
        for (const std::string& dataset : file_.datasets()) {
            std::string name = dataset.substr(1);
            if (name.starts_with("optimizer/")) continue;
            if (name.find('/') != name.npos) {
                throw DataError(fmt::format("{}: {} is not at the root{}", path.string(), dataset,
                                            name.starts_with("model/")
                                                ? ": for a checkpoint's own file name its folder"
                                                : ""));
            }
            tensors_.push_back({std::move(name), file_.shape(dataset)});
        }
    }
    const Tensors& tensors() const override { return tensors_; }
    void read(std::string_view parameter, std::int64_t begin, std::span<float> out) override {
        // HDF5 is usually built without locks: one thread at a time, whatever the file.
        static std::mutex library;
        const std::lock_guard lock(library);
        file_.read(fmt::format("/{}", parameter), begin, out);
    }

  private:
    StateFile file_;
    Tensors tensors_;
};

/// The first eight bytes; zeros behind the end of a shorter file.
std::array<char, 8> first_bytes(const fs::path& path) {
    const PosixFile file = PosixFile::open(path);
    std::array<char, 8> head{};
    const std::int64_t count = std::min(file.size(), std::ssize(head));
    file.read(0, std::as_writable_bytes(std::span(head)).first(static_cast<std::size_t>(count)));
    return head;
}

WeightsKind kind_of_file(const fs::path& path) {
    const std::array<char, 8> head = first_bytes(path);
    const std::string_view text(head.data(), head.size());
    std::int32_t number = 0;
    std::memcpy(&number, head.data(), sizeof(number));
    if (text == "\x89HDF\r\n\x1a\n") return WeightsKind::kHdf5;
    if (text.starts_with("GGUF")) return WeightsKind::kGguf;
    if (number == kLlmcModelMagic) return WeightsKind::kLlmc;
    if (path.extension() == ".safetensors" || path.string().ends_with(kSafetensorsIndexSuffix)) {
        return WeightsKind::kSafetensors;
    }
    if (const std::string_view kind = llmc_kind(number); !kind.empty()) {
        throw DataError(
            fmt::format("{} is {} of llm.c, which holds no GPT-2 weights", path.string(), kind));
    }
    throw DataError(
        fmt::format("{} is neither a checkpoint folder nor an HDF5, .safetensors, {}, "
                    "GGUF or llm.c file",
                    path.string(), kSafetensorsIndexSuffix));
}

bool has_checkpoints(const fs::path& folder) {
    return fs::exists(folder / kManifestFile) || fs::exists(folder / kCompleteFile) ||
           has_finished_save(folder) || has_finished_save(folder / kCheckpointsFolder);
}

/// The file that readers of a folder by transformers or llama.cpp would take; nothing in a folder
/// without such files.
std::optional<fs::path> model_file_in(const fs::path& folder) {
    const fs::path single = folder / "model.safetensors";
    const fs::path index = folder / fmt::format("model{}", kSafetensorsIndexSuffix);
    if (fs::exists(single) && fs::exists(index)) {
        throw DataError(fmt::format("{} holds both {} and {}: name the one to read",
                                    folder.string(), single.filename().string(),
                                    index.filename().string()));
    }
    if (fs::exists(index)) return index;
    if (fs::exists(single)) return single;
    std::vector<fs::path> others;
    for (const auto& entry : fs::directory_iterator(folder)) {
        const auto extension = entry.path().extension();
        if (extension == ".safetensors" || extension == ".gguf") others.push_back(entry.path());
    }
    if (others.empty()) return std::nullopt;
    if (others.size() > 1) {
        throw DataError(fmt::format("{} holds {} files of weights: name the one to read",
                                    folder.string(), others.size()));
    }
    return others.front();
}

}  // namespace

WeightsPlace locate_weights(const fs::path& path) {
    if (!fs::is_directory(path)) return {kind_of_file(path), path};
    if (!has_checkpoints(path)) {
        if (const auto file = model_file_in(path)) return {kind_of_file(*file), *file};
        if (fs::exists(path / "pytorch_model.bin")) {
            throw DataError(fmt::format(
                "{} holds pytorch_model.bin, which only PyTorch reads: save the model again with "
                "transformers, which then writes model.safetensors",
                path.string()));
        }
    }
    return {WeightsKind::kCheckpoint, locate_checkpoint(path).folder.value()};
}

std::unique_ptr<WeightsSource> open_weights(const fs::path& path) {
    const WeightsPlace place = locate_weights(path);
    switch (place.kind) {
        case WeightsKind::kCheckpoint:
            return std::make_unique<CheckpointWeights>(place.path);
        case WeightsKind::kHdf5:
            return std::make_unique<Hdf5Weights>(place.path);
        case WeightsKind::kSafetensors:
            return std::make_unique<SafetensorsWeights>(place.path);
        case WeightsKind::kGguf:
            return std::make_unique<GgufWeights>(place.path);
        case WeightsKind::kLlmc:
            return std::make_unique<LlmcWeights>(place.path);
    }
    throw LogicError("unknown kind of weights");
}

}  // namespace fullshard::checkpoint
