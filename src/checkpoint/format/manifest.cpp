#include "checkpoint/format/manifest.h"

#include "base/error.h"
#include "checkpoint/format/manifest_check.h"
#include "checkpoint/format/row_major.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <utility>

namespace fullshard::checkpoint {
namespace {

std::string label(const TensorEntry& tensor) {
    return dataset_path(tensor.state, tensor.parameter);
}

/// The first reason why `ranges`, blocks or parts, do not cover [0, numel) once, or nothing.
template <typename Range>
std::string cover_problem(const std::vector<Range>& ranges, std::string_view noun,
                          std::int64_t numel, std::int64_t most) {
    std::int64_t next = 0;
    for (const Range& range : ranges) {
        if (range.count < 1 || range.count > most) {
            return fmt::format("the {} at element {} has {} elements", noun, range.begin,
                               range.count);
        }
        if (range.begin > next) {
            return fmt::format("no {} covers elements [{}, {})", noun, next, range.begin);
        }
        if (range.begin < next) {
            return fmt::format("elements from {} on are covered twice", range.begin);
        }
        if (range.count > numel - next) {
            return fmt::format("the {} at element {} reaches past its {} elements", noun,
                               range.begin, numel);
        }
        next += range.count;
    }
    if (next < numel) return fmt::format("no {} covers elements [{}, {})", noun, next, numel);
    return {};
}

/// Why a part cannot lie where it says, or nothing. Its count is known to be sound.
std::string place_problem(const Part& part, const std::vector<FileEntry>& files) {
    if (part.file >= std::ssize(files)) {
        return fmt::format("file {} is not listed", part.file);
    }
    const FileEntry& file = files[static_cast<std::size_t>(part.file)];
    if (file.name == kIndexFile) return fmt::format("{} holds no raw data", kIndexFile);
    const std::int64_t bytes = part.count * kElementBytes;
    if (part.file_offset < 0 || part.file_offset > file.bytes - bytes) {
        return fmt::format("{} bytes at {} lie outside the {} of {}", bytes, part.file_offset,
                           file.bytes, file.name);
    }
    return {};
}

void check_tensor(const TensorEntry& tensor, const std::vector<FileEntry>& files,
                  std::string_view origin) {
    const auto refuse = [&](std::string_view problem) {
        if (problem.empty()) return;
        throw DataError(fmt::format("{}: tensor {}: {}", origin, label(tensor), problem));
    };
    if (!is_parameter_name(tensor.parameter)) refuse("is no name of a dataset");
    const auto numel = checked_numel(tensor.shape);
    if (!numel) refuse(fmt::format("shape [{}] is not possible", fmt::join(tensor.shape, ", ")));
    refuse(cover_problem(tensor.parts, "part", *numel, *numel));
    for (const Part& part : tensor.parts) refuse(place_problem(part, files));
    if (files.size() == 1 && tensor.parts.size() > 1) {
        refuse(fmt::format("lies in {} parts of one file", tensor.parts.size()));
    }
    refuse(cover_problem(tensor.blocks, "block", *numel, kMaxBlockBytes / kElementBytes));
    for (const Block& block : tensor.blocks) {
        const Part& part = tensor.part_with(block.begin);
        if (block.begin + block.count > part.begin + part.count) {
            refuse(fmt::format("the block at element {} lies in two parts", block.begin));
        }
    }
}

void check_overlap(std::span<const TensorEntry> tensors, std::string_view origin) {
    PlacedPart previous;
    for (const PlacedPart& next : in_file_order(tensors)) {
        if (previous.part != nullptr && previous.part->file == next.part->file &&
            previous.part->end_offset() > next.part->file_offset) {
            throw DataError(fmt::format("{}: tensors {} and {} overlap in the file", origin,
                                        label(*previous.tensor), label(*next.tensor)));
        }
        previous = next;
    }
}

void check_files(const std::vector<FileEntry>& files, std::string_view origin) {
    // What holds raw data comes first; a name that could lead out of the folder is none of these.
    const std::int64_t with_data = std::ssize(files) - (files.size() > 1 ? 1 : 0);
    for (std::int64_t i = 0; i < std::ssize(files); ++i) {
        const std::string expected =
            i < with_data ? state_file_name(i, with_data) : std::string(kIndexFile);
        if (files[static_cast<std::size_t>(i)].name != expected) {
            throw DataError(fmt::format("{}: files[{}].name must be {}", origin, i, expected));
        }
    }
    if (files.empty()) throw DataError(fmt::format("{}: files is empty", origin));
}

}  // namespace

std::string state_file_name(std::int64_t file, std::int64_t count) {
    return count == 1 ? std::string(kStateFile) : fmt::format("state-{:04}.h5", file);
}

std::string_view state_folder(State state) {
    static constexpr std::array<std::string_view, 3> kFolders = {"model", "optimizer/exp_avg",
                                                                 "optimizer/exp_avg_sq"};
    return kFolders.at(static_cast<std::size_t>(state));
}

std::string dataset_path(State state, std::string_view parameter) {
    return fmt::format("/{}/{}", state_folder(state), parameter);
}

std::int64_t TensorEntry::numel() const {
    return checkpoint::numel(shape);
}

const Part& TensorEntry::part_with(std::int64_t element) const {
    ensure(!parts.empty() && element >= parts.front().begin, "parts cover the tensor");
    return *std::prev(std::ranges::upper_bound(parts, element, {}, &Part::begin));
}

std::int64_t Part::end_offset() const {
    return file_offset + count * kElementBytes;
}

std::vector<PlacedPart> in_file_order(std::span<const TensorEntry> tensors) {
    std::vector<PlacedPart> ordered;
    for (const TensorEntry& tensor : tensors) {
        for (const Part& part : tensor.parts) ordered.push_back({&tensor, &part});
    }
    std::ranges::sort(ordered, {}, [](const PlacedPart& placed) {
        return std::pair(placed.part->file, placed.part->file_offset);
    });
    return ordered;
}

const TensorEntry& Manifest::tensor(State state, std::string_view parameter) const {
    const auto found = std::ranges::find_if(tensors, [&](const TensorEntry& entry) {
        return entry.state == state && entry.parameter == parameter;
    });
    if (found == tensors.end()) {
        throw DataError(
            fmt::format("the checkpoint has no tensor {}", dataset_path(state, parameter)));
    }
    return *found;
}

bool is_parameter_name(std::string_view name) {
    // HDF5 reads '/' as a border between groups and a lone '.' as the group itself.
    return !name.empty() && name != "." && name.find('/') == name.npos &&
           name.find('\0') == name.npos;
}

void check_manifest(const Manifest& manifest, std::string_view origin) {
    check_files(manifest.files, origin);
    std::set<std::pair<State, std::string_view>> seen;
    for (const TensorEntry& tensor : manifest.tensors) {
        check_tensor(tensor, manifest.files, origin);
        if (!seen.emplace(tensor.state, tensor.parameter).second) {
            throw DataError(fmt::format("{}: tensor {} is listed twice", origin, label(tensor)));
        }
    }
    check_overlap(manifest.tensors, origin);
}

}  // namespace fullshard::checkpoint
