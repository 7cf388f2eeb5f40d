#include "checkpoint/export/consolidate.h"

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/export/fill.h"
#include "checkpoint/export/journal.h"
#include "checkpoint/export/shards.h"
#include "checkpoint/format/reader.h"
#include "checkpoint/format/row_major.h"

#include <fmt/format.h>

#include <algorithm>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

/// What the process has besides buffers: code and libraries, and for each digest block its place in
/// the manifest, in the list of pieces and in what comes out of them.
constexpr std::int64_t kFixedBytes = std::int64_t{32} << 20;
constexpr std::int64_t kBytesPerBlock = 128;

int threads_within(std::int64_t memory, const Manifest& manifest) {
    std::int64_t fixed = kFixedBytes;
    for (const TensorEntry& tensor : manifest.tensors) {
        fixed += std::ssize(tensor.blocks) * kBytesPerBlock;
    }
    const std::int64_t fit = (memory - fixed) / kFillBytesPerThread;
    if (fit < 1) {
        constexpr std::int64_t kMiB = std::int64_t{1} << 20;
        throw UsageError(fmt::format("--memory {}M: this checkpoint needs at least {}M",
                                     memory / kMiB,
                                     (fixed + kFillBytesPerThread + kMiB - 1) / kMiB));
    }
    return static_cast<int>(std::min<std::int64_t>(fit, default_threads()));
}

FileFormat chosen_format(const fs::path& out, const ConsolidateOptions& options) {
    const auto format = options.format ? options.format : format_of(out);
    if (!format) {
        throw UsageError(fmt::format(
            "output {}: the name must end in .h5, .safetensors or .pt, or --format must say what "
            "it is",
            out.string()));
    }
    if (*format == FileFormat::kSafetensors && options.selection.with_optimizer) {
        throw UsageError(
            "--with-optimizer: a safetensors file has one tensor of a name; write "
            "the moments to .h5 or .pt");
    }
    return *format;
}

void remove_quietly(const fs::path& path) {
    std::error_code ignored;
    fs::remove(path, ignored);
}

/// One run of consolidate().
class Consolidation {
  public:
    Consolidation(const fs::path& folder, const fs::path& out, const ConsolidateOptions& options)
        : out_(out),
          options_(options),
          format_(chosen_format(out, options)),
          reader_(folder),
          threads_(threads_within(options.memory_bytes, reader_.manifest())) {
        const std::uint64_t source = digest(read_file(folder / kManifestFile));
        job_ = fmt::format("{} {} {}", digest_text(source), static_cast<int>(format_),
                           name_of(options.dtype));
        shards_ =
            cut_into_shards(out, tensors(), is_safetensors() ? options.max_shard_bytes : INT64_MAX);
        // A single file has nothing that depends on who wrote the checkpoint, and how.
        if (is_sharded()) metadata_ = {{"fullshard.manifest", digest_text(source)}};
        for (Shard& shard : shards_) {
            if (is_safetensors()) std::ranges::sort(shard.tensors, {}, parameter_of);
        }
    }

    Consolidated run() {
        // Other copies have a single file to themselves, or were faster with all of them.
        if (options_.copy.index >= std::ssize(shards_)) return {};
        if (options_.copy.count > 1 && is_published()) return {};
        check_places();
        std::vector<const Shard*> mine;
        std::int64_t total = 0;
        for (std::size_t i = 0; i < shards_.size(); ++i) {
            if (std::cmp_not_equal(i % static_cast<std::size_t>(options_.copy.count),
                                   options_.copy.index))
                continue;
            mine.push_back(&shards_[i]);
            for (const ExportTensor& tensor : shards_[i].tensors) {
                total += tensor.source->numel() * kElementBytes;
            }
        }
        SharedProgress progress(total, options_.progress);
        for (const Shard* shard : mine) write(*shard, progress);
        publish_index();
        return std::move(result_);
    }

  private:
    static const std::string& parameter_of(const ExportTensor& tensor) {
        return tensor.source->parameter;
    }
    bool is_safetensors() const { return format_ == FileFormat::kSafetensors; }
    bool is_sharded() const { return shards_.size() > 1; }

    std::vector<ExportTensor> tensors() const {
        std::vector<ExportTensor> tensors;
        for (const TensorEntry* tensor : select_tensors(reader_.manifest(), options_.selection)) {
            tensors.push_back(
                {tensor, tensor->state == State::kModel ? options_.dtype : DType::kFloat32});
        }
        return tensors;
    }

    std::unique_ptr<Container> container(const Shard& shard) const {
        return make_container(format_, shard.tensors, metadata_,
                              reader_.manifest().progress.optimizer_step);
    }

    bool is_published() const {
        return is_sharded() && fs::exists(index_path(out_)) && all_finished();
    }
    bool all_finished() const {
        return std::ranges::all_of(shards_, [&](const Shard& shard) { return is_finished(shard); });
    }

    /// Shards that an earlier attempt finished are no obstacle.
    void check_places() const {
        const auto check = [&](const fs::path& path) {
            if (fs::is_directory(path)) {
                throw UsageError(fmt::format("output {} is a folder", path.string()));
            }
            if (fs::exists(path) && !options_.overwrite) {
                throw UsageError(
                    fmt::format("output {} exists: choose another name, or --force to replace it",
                                path.string()));
            }
        };
        // Readers take either of the two; an old one would hide the new one.
        check(out_);
        if (is_safetensors()) check(index_path(out_));
        for (const Shard& shard : shards_) {
            if (is_sharded() && !is_finished(shard)) check(shard.path);
        }
    }

    bool is_finished(const Shard& shard) const {
        return fs::is_regular_file(shard.path) && container(shard)->is_finished(shard.path);
    }

    void write(const Shard& shard, SharedProgress& progress) {
        if (is_sharded() && !options_.overwrite && is_finished(shard)) {
            result_.bytes_found += shard.bytes();
            for (const ExportTensor& tensor : shard.tensors) {
                progress.add(tensor.source->numel() * kElementBytes);
            }
            return;
        }
        const fs::path temporary = shard.path.string() + ".tmp";
        const fs::path journal = temporary.string() + ".journal";
        try {
            write_to(shard, temporary, journal, progress);
        } catch (const DataError&) {
            // Going on would meet the same damage again.
            remove_quietly(temporary);
            remove_quietly(journal);
            throw;
        }
        rename_path(temporary, shard.path);
        remove_quietly(journal);
        sync_folder(shard.path.parent_path());
        result_.files.push_back(shard.path);
    }

    void write_to(const Shard& shard, const fs::path& temporary, const fs::path& journal_path,
                  SharedProgress& progress) {
        if (!fs::exists(temporary)) remove_quietly(journal_path);
        std::string job = job_ + shard.path.filename().string();
        for (const ExportTensor& tensor : shard.tensors) job += consolidated_path(*tensor.source);
        Journal journal(journal_path, digest(job));
        const auto file = container(shard);
        const std::vector<std::int64_t> offsets =
            journal.earlier().empty() ? file->create(temporary) : file->reopen(temporary);
        PosixFile out = PosixFile::open_to_update(temporary);
        const Filled filled = fill(reader_, shard.tensors, offsets, out, journal,
                                   file->needs_crcs(), threads_, progress);
        file->finish(out, filled.crcs);
        out.sync();
        out.close();
        result_.bytes_found += filled.bytes_found;
        for (std::size_t i = 0; i < shard.tensors.size(); ++i) {
            if (filled.overflowed[i] == 0) continue;
            result_.overflowed.emplace_back(parameter_of(shard.tensors[i]), filled.overflowed[i]);
        }
    }

    /// Whichever copy finds all shards finished writes the index; two that do so write the same.
    void publish_index() {
        if (!is_safetensors()) return;
        if (!is_sharded()) {
            remove_quietly(index_path(out_));
            return;
        }
        result_.complete = all_finished();
        if (!result_.complete) return;
        write_file_atomically(index_path(out_), index_text(shards_));
        remove_quietly(out_);
        result_.files.push_back(index_path(out_));
    }

    fs::path out_;
    const ConsolidateOptions& options_;
    FileFormat format_;
    CheckpointReader reader_;
    int threads_;
    SafetensorsMetadata metadata_;
    std::string job_;
    std::vector<Shard> shards_;
    Consolidated result_;
};

}  // namespace

Consolidated consolidate(const fs::path& folder, const fs::path& out,
                         const ConsolidateOptions& options) {
    return Consolidation(folder, out, options).run();
}

}  // namespace fullshard::checkpoint
