#include "checkpoint/format/data_files.h"

#include "base/error.h"
#include "checkpoint/format/digest.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/row_major.h"

#include <algorithm>
#include <utility>

namespace fullshard::checkpoint {

void place_in_one_file(std::span<TensorEntry> tensors) {
    for (TensorEntry& tensor : tensors) tensor.parts = {{.begin = 0, .count = tensor.numel()}};
}

void place_by_holder(std::span<TensorEntry> tensors, std::vector<Holding> holdings) {
    std::ranges::sort(holdings, {},
                      [](const Holding& held) { return std::pair(held.tensor, held.begin); });
    for (TensorEntry& tensor : tensors) tensor.parts.clear();
    for (const Holding& held : holdings) {
        ensure(held.tensor >= 0 && held.tensor < std::ssize(tensors), "the tensor exists");
        std::vector<Part>& parts = tensors[static_cast<std::size_t>(held.tensor)].parts;
        if (!parts.empty() && parts.back().file == held.file &&
            parts.back().begin + parts.back().count == held.begin) {
            parts.back().count += held.count;
        } else {
            parts.push_back({.file = held.file, .begin = held.begin, .count = held.count});
        }
    }
}

std::int64_t index_in_dataset(const TensorEntry& tensor, std::int64_t element) {
    const Part& part = tensor.part_with(element);
    const auto first = std::ranges::find(tensor.parts, part.file, &Part::file);
    return (part.file_offset - first->file_offset) / kElementBytes + element - part.begin;
}

void create_state_file(const std::filesystem::path& folder, std::span<TensorEntry> tensors,
                       std::int64_t file, std::int64_t count) {
    std::vector<DatasetShape> datasets;
    std::vector<TensorEntry*> placed;
    for (TensorEntry& tensor : tensors) {
        std::int64_t elements = 0;
        for (const Part& part : tensor.parts) elements += part.file == file ? part.count : 0;
        if (elements == 0) continue;
        datasets.push_back({dataset_path(tensor.state, tensor.parameter),
                            count == 1 ? tensor.shape : std::vector<std::int64_t>{elements}});
        placed.push_back(&tensor);
    }
    const auto offsets = lay_out(folder / state_file_name(file, count), datasets);
    for (std::size_t i = 0; i < placed.size(); ++i) {
        std::int64_t offset = offsets[i];
        for (Part& part : placed[i]->parts) {
            if (part.file != file) continue;
            part.file_offset = offset;
            offset = part.end_offset();
        }
    }
}

void create_index_file(const std::filesystem::path& folder, std::span<const TensorEntry> tensors,
                       std::int64_t count) {
    std::vector<ViewShape> views;
    for (const TensorEntry& tensor : tensors) {
        const std::string path = dataset_path(tensor.state, tensor.parameter);
        ViewShape view{{path, tensor.shape}, {}};
        std::vector<std::int64_t> lengths(static_cast<std::size_t>(count));
        for (const Part& part : tensor.parts) {
            std::int64_t& length = lengths.at(static_cast<std::size_t>(part.file));
            view.pieces.push_back(
                {state_file_name(part.file, count), 0, length, part.begin, part.count});
            length += part.count;
        }
        for (std::size_t i = 0; i < tensor.parts.size(); ++i) {
            view.pieces[i].source_length = lengths[static_cast<std::size_t>(tensor.parts[i].file)];
        }
        views.push_back(std::move(view));
    }
    lay_out_views(folder / kIndexFile, views);
}

FileEntry read_structure(const std::filesystem::path& path, std::span<const TensorEntry> tensors,
                         std::int64_t file) {
    const PosixFile bytes = PosixFile::open(path);
    RunningDigest digest;
    std::vector<std::byte> buffer(std::size_t{1} << 20);
    const auto include = [&](std::int64_t begin, std::int64_t end) {
        while (begin < end) {
            const auto count = std::min(end - begin, static_cast<std::int64_t>(buffer.size()));
            const std::span<std::byte> piece(buffer.data(), static_cast<std::size_t>(count));
            bytes.read(begin, piece);
            digest.update(piece.data(), piece.size());
            begin += count;
        }
    };
    std::int64_t position = 0;
    for (const PlacedPart& placed : in_file_order(tensors)) {
        if (placed.part->file != file) continue;
        include(position, placed.part->file_offset);
        position = placed.part->end_offset();
    }
    const std::int64_t size = bytes.size();
    include(position, size);
    return {path.filename().string(), size, digest.value()};
}

DataFiles::DataFiles(std::filesystem::path folder, std::span<const FileEntry> files)
    : folder_(std::move(folder)) {
    for (const FileEntry& file : files) names_.push_back(file.name);
}

std::shared_ptr<const PosixFile> DataFiles::open(std::int64_t file) {
    constexpr std::size_t kMostOpen = 64;
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(open_, file, &Open::file);
    if (found != open_.end()) return found->handle;
    auto handle = std::make_shared<const PosixFile>(
        PosixFile::open(folder_ / names_.at(static_cast<std::size_t>(file))));
    if (open_.size() == kMostOpen) open_.erase(open_.begin());
    open_.push_back({file, std::move(handle)});
    return open_.back().handle;
}

}  // namespace fullshard::checkpoint
