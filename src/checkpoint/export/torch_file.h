// Files that torch.load(path, weights_only=True, mmap=True) reads, without LibTorch.
#pragma once

#include "checkpoint/export/selection.h"
#include "checkpoint/export/zip.h"
#include "checkpoint/format/posix_file.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fullshard::checkpoint {

/// The archive that torch.save writes: data.pkl names the tensors, data/0, data/1, ... hold their
/// bytes. Weights alone are a state dict, {name: tensor}; with moments the object is {"model":
/// {...}, "exp_avg": {...}, "exp_avg_sq": {...}, "optimizer_step": n}.
class TorchFile {
  public:
    TorchFile(std::span<const ExportTensor> tensors, std::int64_t optimizer_step);

    /// Of the whole file.
    std::int64_t bytes() const { return layout_.bytes(); }
    /// Where each tensor's bytes begin.
    const std::vector<std::int64_t>& offsets() const { return offsets_; }
    /// Writes everything that is no tensor's bytes, given the CRC-32 of each tensor's bytes.
    void write_structure(const PosixFile& file, std::span<const std::uint32_t> crcs) const;

  private:
    /// A small member, its content at hand.
    struct Text {
        std::string content;
        std::int64_t offset = 0;
    };
    ZipLayout layout_;
    std::vector<Text> texts_;  ///< the archive's first members
    std::vector<std::int64_t> offsets_;
};

}  // namespace fullshard::checkpoint
