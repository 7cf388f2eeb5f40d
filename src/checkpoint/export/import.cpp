#include "checkpoint/export/import.h"

#include "base/build_info.h"
#include "base/error.h"
#include "checkpoint/exchange/architecture.h"
#include "checkpoint/exchange/model_weights.h"
#include "checkpoint/format/data_files.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/manifest_check.h"
#include "checkpoint/format/row_major.h"
#include "checkpoint/format/tokenizer_files.h"
#include "checkpoint/format/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBlockElements = kMaxBlockBytes / kElementBytes;

Manifest manifest_of(const WeightsSource& source, const fs::path& path) {
    const BuildInfo& build = build_info();
    Manifest manifest;
    manifest.writer = {.version = std::string(build.version),
                       .git_hash = std::string(build.git_hash),
                       .ranks = 1,
                       .strategy = fmt::format("imported from {}", path.filename().string())};
    for (const WeightsSource::Tensor& tensor : source.tensors()) {
        if (!is_parameter_name(tensor.name)) {
            throw UsageError(fmt::format("{}: tensor '{}' cannot be a parameter's name",
                                         path.string(), tensor.name));
        }
        if (!tensor.unread_type.empty()) {
            throw DataError(fmt::format("{}: tensor '{}' is of type {}, which is not read",
                                        path.string(), tensor.name, tensor.unread_type));
        }
        TensorEntry entry;
        entry.parameter = tensor.name;
        entry.shape = tensor.shape;
        for (std::int64_t begin = 0; begin < entry.numel(); begin += kBlockElements) {
            entry.blocks.push_back({begin, std::min(kBlockElements, entry.numel() - begin), 0});
        }
        manifest.tensors.push_back(std::move(entry));
    }
    if (manifest.tensors.empty()) {
        throw DataError(fmt::format("{} holds no tensors", path.string()));
    }
    return manifest;
}

/// Copies all values and sets the blocks' digests.
void copy_values(WeightsSource& source, std::vector<TensorEntry>& tensors, const PosixFile& file,
                 const ProgressReport& report) {
    struct Piece {
        const TensorEntry* tensor = nullptr;
        Block* block = nullptr;
    };
    std::vector<Piece> pieces;
    std::int64_t total = 0;
    for (TensorEntry& tensor : tensors) {
        total += tensor.numel() * kElementBytes;
        for (Block& block : tensor.blocks) pieces.push_back({&tensor, &block});
    }
    SharedProgress progress(total, report);
    share_work(std::ssize(pieces), default_threads(), [&]() -> Worker {
        return [&, values = std::vector<float>()](std::int64_t item) mutable {
            const auto& [tensor, block] = pieces[static_cast<std::size_t>(item)];
            values.resize(static_cast<std::size_t>(block->count));
            source.read(tensor->parameter, block->begin, values);
            const auto bytes = std::as_bytes(std::span(values));
            block->digest = digest(bytes.data(), bytes.size());
            const std::int64_t offset =
                tensor->parts.front().file_offset + block->begin * kElementBytes;
            file.write_at(offset, bytes);
            file.start_writeback(offset, std::ssize(bytes));
            progress.add(std::ssize(bytes));
        };
    });
}

/// The folder of a model that transformers saved holds its tokenizer too.
std::vector<fs::path> tokenizer_beside(const fs::path& source) {
    const WeightsPlace place = locate_weights(source);
    if (place.kind != WeightsKind::kSafetensors) return {};
    return tokenizer_files_in(fs::absolute(place.path).parent_path());
}

}  // namespace

Imported import_weights(const fs::path& source, const fs::path& parent,
                        const ImportOptions& options) {
    Imported imported;
    imported.architecture = options.architecture ? options.architecture : architecture_of(source);
    const auto weights = imported.architecture ? open_model_weights(source, *imported.architecture)
                                               : open_weights(source);
    Manifest manifest = manifest_of(*weights, source);
    if (imported.architecture) manifest.architecture = spec::to_hf_config(*imported.architecture);
    if (const fs::path taken = parent / folder_name(0); fs::exists(taken) && !options.overwrite) {
        throw UsageError(fmt::format("{} exists: choose another folder, or --force to replace it",
                                     taken.string()));
    }
    const std::vector<fs::path> tokenizer = tokenizer_beside(source);
    if (!options.overwrite) require_room(tokenizer, tokenizer_folder(parent));
    const fs::path folder = begin_save(parent, 0);
    place_in_one_file(manifest.tensors);
    create_state_file(folder, manifest.tensors);
    PosixFile file = PosixFile::open_to_update(folder / kStateFile);
    copy_values(*weights, manifest.tensors, file, options.progress);
    file.sync();
    file.close();
    manifest.files = {read_structure(folder / kStateFile, manifest.tensors)};
    imported.tokenizer = copy_files(tokenizer, tokenizer_folder(parent));
    imported.folder = commit_save(folder, manifest);
    return imported;
}

}  // namespace fullshard::checkpoint
