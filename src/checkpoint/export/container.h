// The files that other programs read: HDF5, safetensors, PyTorch.
#pragma once

#include "checkpoint/export/selection.h"
#include "checkpoint/format/llmc_model.h"
#include "checkpoint/format/posix_file.h"
#include "checkpoint/format/safetensors.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace fullshard::checkpoint {

/// A folder for transformers holds safetensors files; the last two are of GPT-2 and Llama alone.
enum class FileFormat : std::uint8_t { kHdf5, kSafetensors, kTorch, kHuggingFace, kLlmc };

/// "hdf5", "safetensors", "pt", "hf" or "llmc"; nothing for other words.
std::optional<FileFormat> format_named(std::string_view name);
/// By the extension of a file's name: .h5 or .hdf5, .safetensors, .pt or .pth.
std::optional<FileFormat> format_of(const std::filesystem::path& path);

/// One file around the bytes of given tensors. The bytes themselves are written by the caller, at
/// any time and in any order, each tensor's row-major values at its offset.
class Container {
  public:
    virtual ~Container() = default;
    /// Creates the file and claims its space on disk. Returns where each tensor's bytes begin.
    /// Throws RunError.
    virtual std::vector<std::int64_t> create(const std::filesystem::path& path) = 0;
    /// The same offsets for a file that create() made. Throws DataError when it is another file.
    virtual std::vector<std::int64_t> reopen(const std::filesystem::path& path) = 0;
    /// Whether finish() needs the CRC-32 of each tensor's bytes.
    virtual bool needs_crcs() const { return false; }
    /// Writes what is no tensor, as far as create() has not.
    virtual void finish(const PosixFile&, std::span<const std::uint32_t> /*crcs*/) {}
    /// Whether a file that has its final name is this one, finished. Formats that do not say in the
    /// file where it comes from cannot know.
    virtual bool is_finished(const std::filesystem::path&) const { return false; }
};

/// Not for kLlmc. `metadata` goes into a safetensors header, `optimizer_step` beside moments in a
/// PyTorch file. Throws UsageError for names that the format cannot hold.
std::unique_ptr<Container> make_container(FileFormat format, std::vector<ExportTensor> tensors,
                                          SafetensorsMetadata metadata,
                                          std::int64_t optimizer_step);

/// Tensors have the names and shapes of llmc_tensors().
std::unique_ptr<Container> make_llmc_container(std::span<const ExportTensor> tensors,
                                               const LlmcModel& model);

/// Path of a tensor's dataset in a consolidated HDF5 file: "/NAME" for weights, and a checkpoint's
/// path for moments.
std::string consolidated_path(const TensorEntry& tensor);

}  // namespace fullshard::checkpoint
