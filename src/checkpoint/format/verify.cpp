#include "checkpoint/format/verify.h"

#include "base/error.h"
#include "checkpoint/format/block.h"
#include "checkpoint/format/folder_check.h"
#include "checkpoint/format/posix_file.h"
#include "checkpoint/format/row_major.h"
#include "checkpoint/format/state_file.h"

#include <fmt/format.h>

#include <set>
#include <vector>

namespace fullshard::checkpoint {
namespace {

using Problem = std::function<void(const std::string&)>;

void verify_tensors(const PosixFile& file, const Manifest& manifest, const Problem& problem,
                    const ProgressReport& progress) {
    std::int64_t total = 0;
    for (const TensorEntry& tensor : manifest.tensors) total += tensor.numel() * kElementBytes;
    const std::int64_t file_bytes = file.size();
    std::int64_t done = 0;
    std::vector<float> buffer;
    for (const TensorEntry* tensor : in_file_order(manifest.tensors)) {
        bool inside = true;
        for (const Block& block : tensor->blocks) {
            // Past the end of a cut file one message a tensor says it all.
            if (!inside) break;
            inside =
                tensor->file_offset + (block.begin + block.count) * kElementBytes <= file_bytes;
            buffer.resize(static_cast<std::size_t>(block.count));
            try {
                read_block(file, *tensor, block, buffer);
            } catch (const DataError& error) {
                problem(error.what());
            }
            done += block.count * kElementBytes;
            if (progress) progress(done, total);
        }
    }
}

/// The digest has shown that the file's structures are those that were written; this shows that the
/// writer's manifest describes what any reader of HDF5 finds.
void verify_datasets(const std::filesystem::path& path, const Manifest& manifest,
                     const Problem& problem) {
    const StateFile file = StateFile::open(path);
    const std::vector<std::string> found = file.datasets();
    std::set<std::string> extra(found.begin(), found.end());
    for (const TensorEntry& tensor : manifest.tensors) {
        const std::string dataset = dataset_path(tensor.state, tensor.parameter);
        extra.erase(dataset);
        try {
            const auto shape = file.shape(dataset);
            if (shape != tensor.shape) {
                problem(fmt::format("{}: {} has shape [{}], the manifest says [{}]", path.string(),
                                    dataset, fmt::join(shape, ", "),
                                    fmt::join(tensor.shape, ", ")));
            }
            if (file.file_offset(dataset) != tensor.file_offset) {
                problem(fmt::format("{}: {} does not lie at byte {} as the manifest says",
                                    path.string(), dataset, tensor.file_offset));
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
                   const ProgressReport& progress) {
    bool whole = true;
    const Problem note = [&](const std::string& sentence) {
        whole = false;
        problem(sentence);
    };
    const FolderCheck check = check_folder(folder, note);
    if (!check.manifest) return false;
    const std::filesystem::path path = folder / kStateFile;
    if (!std::filesystem::exists(path)) return false;  // check_folder() has said so
    try {
        if (check.structure_whole) verify_datasets(path, *check.manifest, note);
        verify_tensors(PosixFile::open(path), *check.manifest, note, progress);
    } catch (const DataError& error) {
        note(error.what());
    }
    return whole;
}

}  // namespace fullshard::checkpoint
