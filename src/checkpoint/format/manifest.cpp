#include "checkpoint/format/manifest.h"

#include "base/error.h"
#include "checkpoint/format/manifest_check.h"
#include "checkpoint/format/row_major.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace fullshard::checkpoint {
namespace {

std::string label(const TensorEntry& tensor) {
    return dataset_path(tensor.state, tensor.parameter);
}

/// The first reason why blocks do not cover [0, numel) once, or nothing.
std::string cover_problem(const std::vector<Block>& blocks, std::int64_t numel) {
    std::int64_t next = 0;
    for (const Block& block : blocks) {
        if (block.count < 1 || block.count > kMaxBlockBytes / kElementBytes) {
            return fmt::format("the block at element {} has {} elements", block.begin, block.count);
        }
        if (block.begin > next) {
            return fmt::format("no block covers elements [{}, {})", next, block.begin);
        }
        if (block.begin < next) {
            return fmt::format("elements from {} on are covered twice", block.begin);
        }
        if (block.count > numel - next) {
            return fmt::format("the block at element {} reaches past its {} elements", block.begin,
                               numel);
        }
        next += block.count;
    }
    if (next < numel) return fmt::format("no block covers elements [{}, {})", next, numel);
    return {};
}

void check_tensor(const TensorEntry& tensor, std::int64_t file_bytes, std::string_view origin) {
    const auto fail = [&](std::string_view problem) {
        throw DataError(fmt::format("{}: tensor {}: {}", origin, label(tensor), problem));
    };
    if (!is_parameter_name(tensor.parameter)) fail("is no name of a dataset");
    const auto numel = checked_numel(tensor.shape);
    if (!numel) fail(fmt::format("shape [{}] is not possible", fmt::join(tensor.shape, ", ")));
    const std::int64_t bytes = *numel * kElementBytes;
    if (tensor.file_offset < 0 || tensor.file_offset > file_bytes - bytes) {
        fail(fmt::format("{} bytes at {} lie outside the file's {}", bytes, tensor.file_offset,
                         file_bytes));
    }
    const std::string problem = cover_problem(tensor.blocks, *numel);
    if (!problem.empty()) fail(problem);
}

void check_overlap(std::span<const TensorEntry> tensors, std::string_view origin) {
    const TensorEntry* previous = nullptr;
    for (const TensorEntry* tensor : in_file_order(tensors)) {
        if (previous != nullptr && previous->end_offset() > tensor->file_offset) {
            throw DataError(fmt::format("{}: tensors {} and {} overlap in the file", origin,
                                        label(*previous), label(*tensor)));
        }
        previous = tensor;
    }
}

}  // namespace

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

std::int64_t TensorEntry::end_offset() const {
    return file_offset + numel() * kElementBytes;
}

std::vector<const TensorEntry*> in_file_order(std::span<const TensorEntry> tensors) {
    std::vector<const TensorEntry*> ordered;
    ordered.reserve(tensors.size());
    for (const TensorEntry& tensor : tensors) ordered.push_back(&tensor);
    std::ranges::sort(ordered, {}, &TensorEntry::file_offset);
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
    std::set<std::pair<State, std::string_view>> seen;
    for (const TensorEntry& tensor : manifest.tensors) {
        check_tensor(tensor, manifest.file_bytes, origin);
        if (!seen.emplace(tensor.state, tensor.parameter).second) {
            throw DataError(fmt::format("{}: tensor {} is listed twice", origin, label(tensor)));
        }
    }
    check_overlap(manifest.tensors, origin);
}

}  // namespace fullshard::checkpoint
