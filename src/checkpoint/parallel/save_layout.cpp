#include "checkpoint/parallel/save_layout.h"

#include "base/error.h"
#include "checkpoint/format/data_files.h"
#include "checkpoint/format/row_major.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>

namespace fullshard::checkpoint {

namespace {

/// Everybody's items, rank by rank. Collective.
template <typename Item>
std::vector<std::vector<Item>> gather(const comm::Group& group, std::span<const Item> mine) {
    static_assert(std::is_trivially_copyable_v<Item>);
    const auto bytes_of_mine = std::as_bytes(mine);
    std::string bytes(bytes_of_mine.size(), '\0');
    std::ranges::copy(bytes_of_mine, reinterpret_cast<std::byte*>(bytes.data()));
    std::vector<std::vector<Item>> all;
    for (const std::string& theirs : group.all_gather(bytes)) {
        // Not memcpy, which refuses the address of nothing: ranks may hold nothing.
        all.emplace_back(theirs.size() / sizeof(Item));
        std::ranges::copy(theirs, reinterpret_cast<char*>(all.back().data()));
    }
    return all;
}

}  // namespace

SaveLayout::SaveLayout(const SavingRanks& ranks, std::span<const NamedShape> parameters,
                       std::span<const Piece> pieces)
    : ranks_(ranks) {
    for (const NamedShape& parameter : parameters) {
        first_tensor_.push_back(tensors_.size());
        for (const State state : kStates) {
            if (state != State::kModel && !parameter.trainable) continue;
            tensors_.push_back({parameter.parameter, state, parameter.shape, {}, {}});
        }
    }
    if (ranks_.files == 1) {
        place_in_one_file(tensors_);
        return;
    }
    std::vector<Holding> mine;
    for (const PlacedPiece& piece : place(pieces)) {
        mine.push_back({piece.tensor, ranks_.file, piece.begin, std::ssize(piece.values)});
    }
    std::vector<Holding> all;
    for (const auto& theirs : gather<Holding>(ranks_.world, mine)) {
        all.insert(all.end(), theirs.begin(), theirs.end());
    }
    place_by_holder(tensors_, std::move(all));
}

void SaveLayout::create_file(const std::filesystem::path& folder) {
    if (ranks_.sharing.rank() != 0) return;
    if (!offsets_shared_) {
        create_state_file(folder, tensors_, ranks_.file, ranks_.files);
        return;
    }
    std::vector<TensorEntry> again = tensors_;
    create_state_file(folder, again, ranks_.file, ranks_.files);
    ensure(again == tensors_, "equal tensors are laid out alike");
}

void SaveLayout::share_offsets() {
    if (offsets_shared_) return;
    std::vector<std::int64_t> mine;
    if (ranks_.sharing.rank() == 0) {
        for (const TensorEntry& tensor : tensors_) {
            for (const Part& part : tensor.parts) {
                if (part.file == ranks_.file) mine.push_back(part.file_offset);
            }
        }
    }
    // Those who do not lead a file send nothing; of leaders, ranks of one file have one.
    std::vector<std::vector<std::int64_t>> of_file(static_cast<std::size_t>(ranks_.files));
    std::vector<std::int64_t> head{ranks_.file};
    head.insert(head.end(), mine.begin(), mine.end());
    for (const auto& theirs : gather<std::int64_t>(ranks_.world, head)) {
        if (theirs.size() == 1) continue;
        of_file.at(static_cast<std::size_t>(theirs.front()))
            .assign(theirs.begin() + 1, theirs.end());
    }
    std::vector<std::size_t> next(of_file.size());
    for (TensorEntry& tensor : tensors_) {
        for (Part& part : tensor.parts) {
            const auto file = static_cast<std::size_t>(part.file);
            part.file_offset = of_file[file].at(next[file]++);
        }
    }
    offsets_shared_ = true;
}

std::filesystem::path SaveLayout::own_file(const std::filesystem::path& folder) const {
    return folder / state_file_name(ranks_.file, ranks_.files);
}

std::int64_t SaveLayout::bytes() const {
    std::int64_t bytes = 0;
    for (const TensorEntry& tensor : tensors_) bytes += tensor.numel() * kElementBytes;
    return bytes;
}

std::vector<PlacedPiece> SaveLayout::place(std::span<const Piece> pieces) const {
    std::vector<PlacedPiece> placed;
    for (const Piece& piece : pieces) {
        if (piece.values.empty()) continue;
        const std::size_t index =
            first_tensor_.at(piece.parameter) + static_cast<std::size_t>(piece.state);
        ensure(index < tensors_.size() && tensors_[index].state == piece.state,
               "a frozen parameter has no moments");
        placed.push_back({static_cast<std::int64_t>(index), piece.begin, piece.values});
    }
    return placed;
}

std::int64_t SaveLayout::offset_of(std::int64_t tensor, std::int64_t element) const {
    const Part& part = tensors_.at(static_cast<std::size_t>(tensor)).part_with(element);
    ensure(part.file == ranks_.file, "a rank writes to its own file");
    return part.file_offset + (element - part.begin) * kElementBytes;
}

std::vector<TensorEntry> SaveLayout::with_blocks(std::span<const WrittenBlock> mine) const {
    std::vector<TensorEntry> tensors = tensors_;
    for (const auto& theirs : gather<WrittenBlock>(ranks_.world, mine)) {
        for (const WrittenBlock& written : theirs) {
            tensors.at(static_cast<std::size_t>(written.tensor)).blocks.push_back(written.block);
        }
    }
    for (TensorEntry& tensor : tensors) std::ranges::sort(tensor.blocks, {}, &Block::begin);
    return tensors;
}

}  // namespace fullshard::checkpoint
