// Where in the files of a save each rank's data goes.
#pragma once

#include "checkpoint/parallel/piece.h"

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace fullshard::checkpoint {

/// A piece together with its tensor's place in the manifest.
struct PlacedPiece {
    std::int64_t tensor = 0;  ///< index in SaveLayout::tensors()
    std::int64_t begin = 0;
    std::span<const float> values;
};

/// A block that was written, and of which tensor.
struct WrittenBlock {
    std::int64_t tensor = 0;
    Block block;
};

/// The same for all saves of a run: tensors, the parts of each in each file, and their offsets,
/// which are known once the files have been created for the first time.
class SaveLayout {
  public:
    /// The pieces of all ranks together cover every element of the weights, and of the moments of
    /// trainable parameters, once. Collective.
    SaveLayout(const SavingRanks& ranks, std::span<const NamedShape> parameters,
               std::span<const Piece> pieces);

    /// Creates this rank's file, if it leads those that share it. Throws RunError; no collective.
    void create_file(const std::filesystem::path& folder);
    /// Tells all ranks the offsets. Collective; the first time only it communicates.
    void share_offsets();

    /// Without blocks.
    const std::vector<TensorEntry>& tensors() const { return tensors_; }
    const SavingRanks& ranks() const { return ranks_; }
    std::filesystem::path own_file(const std::filesystem::path& folder) const;
    /// Bytes of all tensors.
    std::int64_t bytes() const;

    /// The pieces that the constructor saw, or others of the same places.
    std::vector<PlacedPiece> place(std::span<const Piece> pieces) const;
    /// Byte of this rank's file where an element of a tensor belongs.
    std::int64_t offset_of(std::int64_t tensor, std::int64_t element) const;

    /// The tensors with everybody's blocks. Collective.
    std::vector<TensorEntry> with_blocks(std::span<const WrittenBlock> mine) const;

  private:
    SavingRanks ranks_;
    std::vector<TensorEntry> tensors_;
    std::vector<std::size_t> first_tensor_;  ///< of each parameter; its weights come first
    bool offsets_shared_ = false;
};

}  // namespace fullshard::checkpoint
