#include "checkpoint/export/container.h"

#include "base/error.h"
#include "checkpoint/export/torch_file.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/state_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

struct FormatName {
    FileFormat format;
    std::string_view name;
};
constexpr std::array kNames{
    FormatName{FileFormat::kHdf5, "hdf5"}, FormatName{FileFormat::kSafetensors, "safetensors"},
    FormatName{FileFormat::kTorch, "pt"}, FormatName{FileFormat::kHuggingFace, "hf"},
    FormatName{FileFormat::kLlmc, "llmc"}};
constexpr std::array kExtensions{
    FormatName{FileFormat::kHdf5, ".h5"}, FormatName{FileFormat::kHdf5, ".hdf5"},
    FormatName{FileFormat::kTorch, ".pt"}, FormatName{FileFormat::kTorch, ".pth"},
    FormatName{FileFormat::kSafetensors, ".safetensors"}};

std::optional<FileFormat> find_format(std::span<const FormatName> list, std::string_view name) {
    const auto found = std::ranges::find(list, name, &FormatName::name);
    if (found == list.end()) return std::nullopt;
    return found->format;
}

class Hdf5Container : public Container {
  public:
    explicit Hdf5Container(std::span<const ExportTensor> tensors) {
        for (const ExportTensor& tensor : tensors) {
            const TensorEntry* source = tensor.source;
            if (source->state == State::kModel && source->parameter == "optimizer") {
                throw UsageError(
                    "a parameter named 'optimizer' takes the name of the moments' "
                    "group: --exclude it");
            }
            datasets_.push_back({consolidated_path(*source), source->shape, tensor.dtype});
        }
    }
    std::vector<std::int64_t> create(const fs::path& path) override {
        return checkpoint::lay_out(path, datasets_);
    }
    std::vector<std::int64_t> reopen(const fs::path& path) override {
        const StateFile file = StateFile::open(path);
        std::vector<std::int64_t> offsets;
        for (const DatasetShape& dataset : datasets_) {
            offsets.push_back(file.file_offset(dataset.path).value());
        }
        return offsets;
    }

  private:
    std::vector<DatasetShape> datasets_;
};

/// All that is no tensor is the header, known from the start.
class SafetensorsContainer : public Container {
  public:
    SafetensorsContainer(std::span<const ExportTensor> tensors,
                         const SafetensorsMetadata& metadata) {
        for (const ExportTensor& tensor : tensors) {
            entries_.push_back({tensor.name, tensor.shape, 0, tensor.dtype});
        }
        header_ = make_safetensors_header(entries_, metadata);
    }
    std::vector<std::int64_t> create(const fs::path& path) override {
        PosixFile::create(path).reserve(bytes());
        return offsets();
    }
    std::vector<std::int64_t> reopen(const fs::path&) override { return offsets(); }
    void finish(const PosixFile& file, std::span<const std::uint32_t>) override {
        file.write_at(0, std::as_bytes(std::span(header_)));
    }
    bool is_finished(const fs::path& path) const override {
        const PosixFile file = PosixFile::open(path);
        if (file.size() != bytes()) return false;
        std::string found(header_.size(), '\0');
        file.read(0, std::as_writable_bytes(std::span(found)));
        return found == header_;
    }

  private:
    std::int64_t bytes() const { return entries_.back().file_offset + entries_.back().bytes(); }
    std::vector<std::int64_t> offsets() const {
        std::vector<std::int64_t> offsets;
        for (const SafetensorsEntry& entry : entries_) offsets.push_back(entry.file_offset);
        return offsets;
    }
    std::vector<SafetensorsEntry> entries_;
    std::string header_;
};

class TorchContainer : public Container {
  public:
    TorchContainer(std::span<const ExportTensor> tensors, std::int64_t optimizer_step)
        : file_(tensors, optimizer_step) {}
    std::vector<std::int64_t> create(const fs::path& path) override {
        PosixFile::create(path).reserve(file_.bytes());
        return file_.offsets();
    }
    std::vector<std::int64_t> reopen(const fs::path&) override { return file_.offsets(); }
    bool needs_crcs() const override { return true; }
    void finish(const PosixFile& file, std::span<const std::uint32_t> crcs) override {
        file_.write_structure(file, crcs);
    }

  private:
    TorchFile file_;
};

/// Where a tensor lies is known from its name in the format.
class LlmcContainer : public Container {
  public:
    LlmcContainer(std::span<const ExportTensor> tensors, const LlmcModel& model) : model_(model) {
        const std::vector<LlmcTensor> places = llmc_tensors(model);
        for (const ExportTensor& tensor : tensors) {
            const auto place = std::ranges::find(places, tensor.name, &LlmcTensor::name);
            ensure(place != places.end() && place->shape == tensor.shape,
                   "tensors of llm.c have its names and shapes");
            offsets_.push_back(place->file_offset);
        }
    }
    std::vector<std::int64_t> create(const fs::path& path) override {
        const PosixFile file = PosixFile::create(path);
        file.reserve(llmc_file_bytes(model_));
        file.truncate(llmc_file_bytes(model_));  // rows of the padding are zeros that nobody writes
        return offsets_;
    }
    std::vector<std::int64_t> reopen(const fs::path&) override { return offsets_; }
    void finish(const PosixFile& file, std::span<const std::uint32_t>) override {
        file.write_at(0, make_llmc_header(model_));
    }

  private:
    LlmcModel model_;
    std::vector<std::int64_t> offsets_;
};

}  // namespace

std::optional<FileFormat> format_named(std::string_view name) {
    return find_format(kNames, name);
}

std::optional<FileFormat> format_of(const fs::path& path) {
    return find_format(kExtensions, path.extension().string());
}

std::string consolidated_path(const TensorEntry& tensor) {
    return tensor.state == State::kModel ? fmt::format("/{}", tensor.parameter)
                                         : dataset_path(tensor.state, tensor.parameter);
}

std::unique_ptr<Container> make_container(FileFormat format, std::vector<ExportTensor> tensors,
                                          SafetensorsMetadata metadata,
                                          std::int64_t optimizer_step) {
    switch (format) {
        case FileFormat::kHdf5:
            return std::make_unique<Hdf5Container>(tensors);
        case FileFormat::kSafetensors:
        case FileFormat::kHuggingFace:
            return std::make_unique<SafetensorsContainer>(tensors, metadata);
        case FileFormat::kTorch:
            return std::make_unique<TorchContainer>(tensors, optimizer_step);
        case FileFormat::kLlmc:
            break;
    }
    throw LogicError("no container of this file format");
}

std::unique_ptr<Container> make_llmc_container(std::span<const ExportTensor> tensors,
                                               const LlmcModel& model) {
    return std::make_unique<LlmcContainer>(tensors, model);
}

}  // namespace fullshard::checkpoint
