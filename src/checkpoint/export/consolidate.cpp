#include "checkpoint/export/consolidate.h"

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/export/fill.h"
#include "checkpoint/export/journal.h"
#include "checkpoint/export/model_tensors.h"
#include "checkpoint/export/shards.h"
#include "checkpoint/format/reader.h"
#include "checkpoint/format/row_major.h"
#include "checkpoint/format/tokenizer_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

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
    const bool of_a_model = *format == FileFormat::kHuggingFace || *format == FileFormat::kLlmc;
    if ((*format == FileFormat::kSafetensors || of_a_model) && options.selection.with_optimizer) {
        throw UsageError(
            "--with-optimizer: a safetensors file has one tensor of a name, and llm.c's none for "
            "moments; write them to .h5 or .pt");
    }
    if (of_a_model && !(options.selection.include.empty() && options.selection.exclude.empty())) {
        throw UsageError("--include and --exclude: formats hf and llmc hold whole models");
    }
    if (options.tokenizer && *format != FileFormat::kHuggingFace) {
        throw UsageError("--tokenizer goes with --format hf");
    }
    return *format;
}

/// Of a folder, what its readers look for in it.
fs::path file_of(const fs::path& out, FileFormat format) {
    return format == FileFormat::kHuggingFace ? out / "model.safetensors" : out;
}

/// The user's choice must have such files; what the run keeps may be nothing.
std::vector<fs::path> find_tokenizer(const fs::path& folder, FileFormat format,
                                     const ConsolidateOptions& options) {
    if (format != FileFormat::kHuggingFace) return {};
    if (!options.tokenizer) return tokenizer_files_in(tokenizer_folder(folder.parent_path()));
    auto files = tokenizer_files_in(*options.tokenizer);
    if (files.empty()) {
        throw UsageError(fmt::format("--tokenizer {}: holds no files of a tokenizer",
                                     options.tokenizer->string()));
    }
    return files;
}

void remove_quietly(const fs::path& path) {
    std::error_code ignored;
    fs::remove(path, ignored);
}

/// One run of consolidate().
class Consolidation {
  public:
    Consolidation(const fs::path& folder, const fs::path& out, const ConsolidateOptions& options)
        : options_(options),
          format_(chosen_format(out, options)),
          out_(file_of(out, format_)),
          reader_(folder),
          threads_(threads_within(options.memory_bytes, reader_.manifest())),
          tokenizer_(find_tokenizer(folder, format_, options)) {
        if (format_ == FileFormat::kHuggingFace || format_ == FileFormat::kLlmc) {
            architecture_ = exported_architecture(reader_.manifest(), folder.string());
        }
        if (format_ == FileFormat::kLlmc) llmc_ = llmc_model_of(*architecture_, options.dtype);
        const std::uint64_t source = digest(read_file(folder / kManifestFile));
        job_ = fmt::format("{} {} {}", digest_text(source), static_cast<int>(format_),
                           name_of(options.dtype));
        shards_ = cut_into_shards(out_, tensors(),
                                  is_safetensors() ? options.max_shard_bytes : INT64_MAX);
        // A single file has nothing that depends on who wrote the checkpoint, and how.
        if (is_sharded()) metadata_ = {{"fullshard.manifest", digest_text(source)}};
        for (Shard& shard : shards_) {
            if (is_safetensors()) std::ranges::sort(shard.tensors, {}, &ExportTensor::name);
        }
    }

    Consolidated run() {
        // Other copies have a single file to themselves, or were faster with all of them.
        if (options_.copy.index >= std::ssize(shards_)) return {};
        if (options_.copy.count > 1 && is_published()) return {};
        check_places();
        if (format_ == FileFormat::kHuggingFace) make_folder();
        std::vector<const Shard*> mine;
        std::int64_t total = 0;
        for (std::size_t i = 0; i < shards_.size(); ++i) {
            if (std::cmp_not_equal(i % static_cast<std::size_t>(options_.copy.count),
                                   options_.copy.index))
                continue;
            mine.push_back(&shards_[i]);
            for (const ExportTensor& tensor : shards_[i].tensors) {
                total += tensor.numel() * kElementBytes;
            }
        }
        SharedProgress progress(total, options_.progress);
        for (const Shard* shard : mine) write(*shard, progress);
        publish_index();
        return std::move(result_);
    }

  private:
    bool is_safetensors() const {
        return format_ == FileFormat::kSafetensors || format_ == FileFormat::kHuggingFace;
    }
    bool is_sharded() const { return shards_.size() > 1; }

    std::vector<ExportTensor> tensors() const {
        if (architecture_) {
            return exported_tensors(reader_.manifest(), *architecture_,
                                    llmc_ ? NamesOf::kLlmc : NamesOf::kTransformers,
                                    options_.dtype);
        }
        std::vector<ExportTensor> tensors;
        for (const TensorEntry* tensor : select_tensors(reader_.manifest(), options_.selection)) {
            tensors.push_back(unchanged(
                *tensor, tensor->state == State::kModel ? options_.dtype : DType::kFloat32));
        }
        return tensors;
    }

    std::unique_ptr<Container> container(const Shard& shard) const {
        if (llmc_) return make_llmc_container(shard.tensors, *llmc_);
        return make_container(format_, shard.tensors, metadata_,
                              reader_.manifest().progress.optimizer_step);
    }

    bool is_published() const {
        return is_sharded() && fs::exists(index_path(out_)) && all_finished();
    }
    bool all_finished() const {
        return std::ranges::all_of(shards_, [&](const Shard& shard) { return is_finished(shard); });
    }

    std::string config_text() const { return spec::to_hf_config(*architecture_, options_.dtype); }
    fs::path config_path() const { return out_.parent_path() / "config.json"; }

    /// A folder whose small files are of another model is somebody else's.
    void check_folder() const {
        const fs::path folder = out_.parent_path();
        if (fs::exists(folder) && !fs::is_directory(folder)) {
            throw UsageError(fmt::format("output {} is no folder", folder.string()));
        }
        if (options_.overwrite) return;
        if (fs::exists(config_path()) && read_file(config_path()) != config_text()) {
            throw UsageError(fmt::format(
                "output {} is there with other content: choose another folder, or --force to "
                "replace it",
                config_path().string()));
        }
        require_room(tokenizer_, folder);
    }

    /// One of several copies writes the small files.
    void make_folder() {
        const fs::path folder = out_.parent_path();
        std::error_code error;
        fs::create_directories(folder, error);
        if (error) throw RunError(fmt::format("{}: {}", folder.string(), error.message()));
        if (options_.copy.index != 0) return;
        result_.companions = copy_files(tokenizer_, folder);
        write_file_atomically(config_path(), config_text());
        result_.companions.push_back(config_path());
    }

    /// Shards that an earlier attempt finished are no obstacle.
    void check_places() const {
        if (format_ == FileFormat::kHuggingFace) check_folder();
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
                progress.add(tensor.numel() * kElementBytes);
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
            result_.overflowed.emplace_back(shard.tensors[i].source->parameter,
                                            filled.overflowed[i]);
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

    const ConsolidateOptions& options_;
    FileFormat format_;
    fs::path out_;  ///< of the tensors: the file, or what it would be called without shards
    CheckpointReader reader_;
    int threads_;
    std::vector<fs::path> tokenizer_;
    std::optional<spec::Architecture> architecture_;  ///< for formats of models
    std::optional<LlmcModel> llmc_;
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
