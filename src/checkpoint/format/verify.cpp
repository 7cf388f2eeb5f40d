#include "checkpoint/format/verify.h"

#include "base/error.h"
#include "checkpoint/format/block.h"
#include "checkpoint/format/data_files.h"
#include "checkpoint/format/folder_check.h"
#include "checkpoint/format/row_major.h"
#include "checkpoint/format/state_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace fullshard::checkpoint {
namespace {

using Problem = std::function<void(const std::string&)>;

struct PlacedBlock {
    const TensorEntry* tensor = nullptr;
    const Block* block = nullptr;
};

/// All blocks by file and by where they lie in it, but without missing files, of which
/// check_folder() has told. Past the end of a cut file one block of a part speaks for all.
std::vector<PlacedBlock> readable_blocks(const std::filesystem::path& folder,
                                         const Manifest& manifest) {
    std::vector<PlacedBlock> blocks;
    for (const auto& [tensor, part] : in_file_order(manifest.tensors)) {
        std::error_code missing;
        const std::string& name = manifest.files[static_cast<std::size_t>(part->file)].name;
        const std::uintmax_t bytes = std::filesystem::file_size(folder / name, missing);
        if (missing) continue;
        const std::int64_t end = part->begin + part->count;
        auto block = std::ranges::lower_bound(tensor->blocks, part->begin, {}, &Block::begin);
        for (bool inside = true; inside && block != tensor->blocks.end() && block->begin < end;
             ++block) {
            const std::int64_t last = block->begin + block->count - part->begin;
            inside = std::cmp_less_equal(part->file_offset + last * kElementBytes, bytes);
            blocks.push_back({tensor, &*block});
        }
    }
    return blocks;
}

void verify_tensors(const std::filesystem::path& folder, const Manifest& manifest, int threads,
                    const Problem& problem, const ProgressReport& report) {
    const std::vector<PlacedBlock> blocks = readable_blocks(folder, manifest);
    std::int64_t total = 0;
    for (const PlacedBlock& placed : blocks) total += placed.block->count * kElementBytes;
    SharedProgress progress(total, report);
    DataFiles files(folder, manifest.files);
    std::mutex mutex;
    std::map<std::int64_t, std::string> found;  // in the files' order, whoever was faster
    share_work(std::ssize(blocks), threads, [&]() -> Worker {
        return [&, buffer = std::vector<float>()](std::int64_t item) mutable {
            const auto& [tensor, block] = blocks[static_cast<std::size_t>(item)];
            buffer.resize(static_cast<std::size_t>(block->count));
            try {
                read_block(files, *tensor, *block, buffer);
            } catch (const DataError& error) {
                const std::lock_guard lock(mutex);
                found.emplace(item, error.what());
            }
            progress.add(block->count * kElementBytes);
        };
    });
    for (const auto& [item, sentence] : found) problem(sentence);
}

/// What HDF5 should find in a file.
struct ExpectedDataset {
    std::vector<std::int64_t> shape;
    std::int64_t file_offset = 0;
};

/// The datasets that file number `index` should have, by path. A part that does not continue its
/// tensor's last one in the file is a problem.
std::map<std::string, ExpectedDataset> expected_datasets(const Manifest& manifest,
                                                         std::int64_t index,
                                                         const Problem& problem) {
    std::map<std::string, ExpectedDataset> expected;
    for (const TensorEntry& tensor : manifest.tensors) {
        const std::string path = dataset_path(tensor.state, tensor.parameter);
        for (const Part& part : tensor.parts) {
            if (part.file != index) continue;
            const bool whole = manifest.files.size() == 1;
            const auto [found, added] = expected.try_emplace(
                path, ExpectedDataset{whole ? tensor.shape : std::vector<std::int64_t>{0},
                                      part.file_offset});
            if (whole) continue;
            ExpectedDataset& dataset = found->second;
            if (part.file_offset != dataset.file_offset + dataset.shape[0] * kElementBytes) {
                problem(fmt::format("{}: elements [{}, {}) do not follow those before them", path,
                                    part.begin, part.begin + part.count));
            }
            dataset.shape[0] += part.count;
        }
    }
    return expected;
}

/// The digest has shown that a file's structures are those that were written; this shows that the
/// writer's manifest describes what any reader of HDF5 finds.
void verify_datasets(const std::filesystem::path& path, const Manifest& manifest,
                     std::int64_t index, const Problem& problem) {
    const StateFile file = StateFile::open(path);
    const std::vector<std::string> found = file.datasets();
    std::set<std::string> extra(found.begin(), found.end());
    for (const auto& [dataset, expected] : expected_datasets(manifest, index, problem)) {
        extra.erase(dataset);
        try {
            const auto shape = file.shape(dataset);
            if (shape != expected.shape) {
                problem(fmt::format("{}: {} has shape [{}], the manifest says [{}]", path.string(),
                                    dataset, fmt::join(shape, ", "),
                                    fmt::join(expected.shape, ", ")));
            }
            if (file.dtype(dataset) != DType::kFloat32) {
                problem(fmt::format("{}: {} is no float32", path.string(), dataset));
            }
            if (file.file_offset(dataset) != expected.file_offset) {
                problem(fmt::format("{}: {} does not lie at byte {} as the manifest says",
                                    path.string(), dataset, expected.file_offset));
            }
        } catch (const DataError& error) {
            problem(error.what());
        }
    }
    for (const std::string& dataset : extra) {
        problem(fmt::format("{}: {} is not in the manifest", path.string(), dataset));
    }
}

}  // namespace

bool verify_folder(const std::filesystem::path& folder, const Problem& problem,
                   const ProgressReport& progress, int threads) {
    bool whole = true;
    const Problem note = [&](const std::string& sentence) {
        whole = false;
        problem(sentence);
    };
    const FolderCheck check = check_folder(folder, note);
    if (!check.manifest) return false;
    const std::vector<FileEntry>& files = check.manifest->files;
    try {
        for (std::int64_t i = 0; i < std::ssize(files); ++i) {
            const std::string& name = files[static_cast<std::size_t>(i)].name;
            // The index is for people: its digest says all that matters.
            if (!check.structure_whole[static_cast<std::size_t>(i)] || name == kIndexFile) continue;
            verify_datasets(folder / name, *check.manifest, i, note);
        }
        verify_tensors(folder, *check.manifest, threads, note, progress);
    } catch (const DataError& error) {
        note(error.what());
    }
    return whole;
}

}  // namespace fullshard::checkpoint
