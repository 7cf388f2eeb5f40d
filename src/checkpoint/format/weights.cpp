#include "checkpoint/format/weights.h"

#include "base/error.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/posix_file.h"
#include "checkpoint/format/reader.h"
#include "checkpoint/format/row_major.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/state_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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
        file_.read(fmt::format("/{}", parameter), begin, out);
    }

  private:
    StateFile file_;
    Tensors tensors_;
};

class SafetensorsWeights : public WeightsSource {
  public:
    explicit SafetensorsWeights(PosixFile file)
        : file_(std::move(file)), entries_(read_safetensors_header(file_)) {
        for (const SafetensorsEntry& entry : entries_)
            tensors_.push_back({entry.name, entry.shape});
    }
    const Tensors& tensors() const override { return tensors_; }
    void read(std::string_view parameter, std::int64_t begin, std::span<float> out) override {
        const auto entry = std::ranges::find(entries_, parameter, &SafetensorsEntry::name);
        const std::string path = file_.path().string();
        if (entry == entries_.end())
            throw DataError(fmt::format("{} has no tensor {}", path, parameter));
        const auto count = static_cast<std::int64_t>(out.size());
        if (begin < 0 || count > numel(entry->shape) - begin) {
            throw DataError(fmt::format("{}: {}: elements [{}, {}) are outside of its {}", path,
                                        parameter, begin, begin + count, numel(entry->shape)));
        }
        file_.read(entry->file_offset + begin * kElementBytes, std::as_writable_bytes(out));
    }

  private:
    PosixFile file_;
    std::vector<SafetensorsEntry> entries_;
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
    PosixFile file = PosixFile::open(path);
    if (is_hdf5(file)) return std::make_unique<Hdf5Weights>(path);
    if (path.extension() == ".safetensors") {
        return std::make_unique<SafetensorsWeights>(std::move(file));
    }
    throw DataError(fmt::format(
        "{} is neither a checkpoint folder nor an HDF5 or .safetensors file", path.string()));
}

}  // namespace fullshard::checkpoint
