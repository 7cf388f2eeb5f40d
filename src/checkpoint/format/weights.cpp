#include "checkpoint/format/weights.h"

#include "base/error.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/posix_file.h"
#include "checkpoint/format/reader.h"
#include "checkpoint/format/safetensors_weights.h"
#include "checkpoint/format/state_file.h"

#include <fmt/format.h>

#include <array>
#include <mutex>
#include <utility>

namespace fullshard::checkpoint {
namespace {

using Tensors = std::vector<WeightsSource::Tensor>;

class CheckpointWeights : public WeightsSource {
  public:
    explicit CheckpointWeights(const std::filesystem::path& folder) : reader_(folder) {
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
    explicit Hdf5Weights(const std::filesystem::path& path) : file_(StateFile::open(path)) {
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

bool is_hdf5(const PosixFile& file) {
    static constexpr std::array<unsigned char, 8> kSignature = {0x89, 'H',  'D',  'F',
                                                                '\r', '\n', 0x1a, '\n'};
    std::array<unsigned char, 8> head{};
    if (file.size() < static_cast<std::int64_t>(head.size())) return false;
    file.read(0, std::as_writable_bytes(std::span(head)));
    return head == kSignature;
}

}  // namespace

std::unique_ptr<WeightsSource> open_weights(const std::filesystem::path& path) {
    if (std::filesystem::is_directory(path)) {
        return std::make_unique<CheckpointWeights>(locate_checkpoint(path).folder.value());
    }
    if (is_hdf5(PosixFile::open(path))) return std::make_unique<Hdf5Weights>(path);
    if (path.extension() == ".safetensors" || path.string().ends_with(kSafetensorsIndexSuffix)) {
        return std::make_unique<SafetensorsWeights>(path);
    }
    throw DataError(
        fmt::format("{} is neither a checkpoint folder nor an HDF5, .safetensors or {} file",
                    path.string(), kSafetensorsIndexSuffix));
}

}  // namespace fullshard::checkpoint
