#include "checkpoint/format/consolidate.h"

#include "base/error.h"
#include "checkpoint/format/layout.h"
#include "checkpoint/format/posix_file.h"
#include "checkpoint/format/reader.h"
#include "checkpoint/format/row_major.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/state_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Receives the tensors in the order it was given them, each from first to last element.
class WeightsWriter {
  public:
    virtual ~WeightsWriter() = default;
    virtual void write(const TensorEntry& tensor, std::int64_t begin,
                       std::span<const float> values) = 0;
    /// All is written: makes it durable.
    virtual void finish() = 0;
};

class Hdf5Writer : public WeightsWriter {
  public:
    Hdf5Writer(fs::path path, const std::vector<const TensorEntry*>& tensors)
        : path_(std::move(path)), file_(create(path_, tensors)) {}
    void write(const TensorEntry& tensor, std::int64_t begin,
               std::span<const float> values) override {
        file_.write("/" + tensor.parameter, begin, values);
    }
    void finish() override {
        file_.close();
        PosixFile::open_to_sync(path_).sync();
    }

  private:
    static StateFile create(const fs::path& path, const std::vector<const TensorEntry*>& tensors) {
        std::vector<DatasetShape> datasets;
        for (const TensorEntry* tensor : tensors) {
            datasets.push_back({"/" + tensor->parameter, tensor->shape});
        }
        lay_out(path, datasets);
        return StateFile::open_to_write(path);
    }
    fs::path path_;
    StateFile file_;
};

class SafetensorsWriter : public WeightsWriter {
  public:
    /// Brings the tensors into the file's order.
    SafetensorsWriter(const fs::path& path, std::vector<const TensorEntry*>& tensors)
        : file_(PosixFile::create(path)) {
        std::vector<SafetensorsEntry> entries;
        for (const TensorEntry* tensor : tensors)
            entries.push_back({tensor->parameter, tensor->shape, 0});
        const std::string header = make_safetensors_header(entries);
        std::ranges::sort(tensors, {}, &TensorEntry::parameter);
        const SafetensorsEntry& last = entries.back();
        file_.reserve(last.file_offset + numel(last.shape) * kElementBytes);
        file_.write(std::as_bytes(std::span(header)));
    }
    void write(const TensorEntry&, std::int64_t, std::span<const float> values) override {
        file_.write(std::as_bytes(values));
    }
    void finish() override {
        file_.sync();
        file_.close();
    }

  private:
    PosixFile file_;
};

std::unique_ptr<WeightsWriter> make_writer(const fs::path& out, const fs::path& temporary,
                                           std::vector<const TensorEntry*>& tensors) {
    if (out.extension() == ".h5") return std::make_unique<Hdf5Writer>(temporary, tensors);
    return std::make_unique<SafetensorsWriter>(temporary, tensors);
}

/// Removed unless it was renamed.
class TemporaryFile {
  public:
    explicit TemporaryFile(const fs::path& out) : out_(out), path_(out.string() + ".tmp") {}
    ~TemporaryFile() {
        std::error_code ignored;
        if (!published_) fs::remove(path_, ignored);
    }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;

    const fs::path& path() const { return path_; }
    void publish() {
        rename_path(path_, out_);
        published_ = true;
        sync_folder(out_.parent_path());
    }

  private:
    fs::path out_;
    fs::path path_;
    bool published_ = false;
};

void check_output(const fs::path& out, bool overwrite) {
    if (out.extension() != ".h5" && out.extension() != ".safetensors") {
        throw UsageError(
            fmt::format("output {}: the name must end in .h5 or .safetensors", out.string()));
    }
    if (fs::is_directory(out)) throw UsageError(fmt::format("output {} is a folder", out.string()));
    if (fs::exists(out) && !overwrite) {
        throw UsageError(fmt::format(
            "output {} exists: choose another name, or --force to replace it", out.string()));
    }
}

}  // namespace

void consolidate(const fs::path& folder, const fs::path& out, const ConsolidateOptions& options) {
    check_output(out, options.overwrite);
    CheckpointReader reader(folder);
    std::vector<const TensorEntry*> tensors;
    std::int64_t total = 0;
    for (const TensorEntry& tensor : reader.manifest().tensors) {
        if (tensor.state != State::kModel) continue;
        tensors.push_back(&tensor);
        total += tensor.numel() * kElementBytes;
    }
    if (tensors.empty()) throw DataError(fmt::format("{} holds no model weights", folder.string()));

    TemporaryFile temporary(out);
    const auto writer = make_writer(out, temporary.path(), tensors);
    std::vector<float> buffer;
    for (const TensorEntry* tensor : tensors) {
        for (const Block& block : tensor->blocks) {
            buffer.resize(static_cast<std::size_t>(block.count));
            reader.read(State::kModel, tensor->parameter, block.begin, buffer);
            writer->write(*tensor, block.begin, buffer);
            if (options.progress) options.progress(reader.bytes_read(), total);
        }
    }
    writer->finish();
    temporary.publish();
}

}  // namespace fullshard::checkpoint
