#include "checkpoint/format/reader.h"

#include "base/error.h"
#include "checkpoint/format/block.h"
#include "checkpoint/format/data_files.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/posix_file.h"
#include "checkpoint/format/row_major.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace fullshard::checkpoint {

struct CheckpointReader::Impl {
    std::filesystem::path folder;
    Manifest manifest;
    DataFiles files;
    bool verifies;
    std::unordered_map<std::string, const TensorEntry*> by_dataset;
    std::mutex mutex;  ///< of the cache
    std::vector<float> cache;
    const Block* cached = nullptr;
    std::atomic<std::int64_t> bytes_read = 0;

    Impl(std::filesystem::path where, Manifest known, bool verify)
        : folder(std::move(where)),
          manifest(std::move(known)),
          files(folder, manifest.files),
          verifies(verify) {
        for (const TensorEntry& tensor : manifest.tensors) {
            by_dataset.emplace(dataset_path(tensor.state, tensor.parameter), &tensor);
        }
    }

    const TensorEntry& tensor(State state, std::string_view parameter) const {
        const std::string dataset = dataset_path(state, parameter);
        const auto found = by_dataset.find(dataset);
        if (found == by_dataset.end()) {
            throw DataError(fmt::format("{} has no tensor {}", folder.string(), dataset));
        }
        return *found->second;
    }

    void fetch(const TensorEntry& entry, const Block& block, std::span<float> out) {
        bytes_read += block.count * kElementBytes;
        read_block(files, entry, block, out);
    }

    /// Elements from `begin` on, all of one part.
    void fetch_unverified(const TensorEntry& entry, std::int64_t begin, std::span<float> out) {
        const Part& part = entry.part_with(begin);
        bytes_read += static_cast<std::int64_t>(out.size_bytes());
        files.open(part.file)->read(part.file_offset + (begin - part.begin) * kElementBytes,
                                    std::as_writable_bytes(out));
    }

    /// Elements from `first` on, counted in the block, from the cache; the whole block is read when
    /// another one was there.
    void copy_cached(const TensorEntry& entry, const Block& block, std::int64_t first,
                     std::span<float> out) {
        const std::lock_guard lock(mutex);
        if (cached != &block) {
            cached = nullptr;
            cache.resize(static_cast<std::size_t>(block.count));
            fetch(entry, block, cache);
            cached = &block;
        }
        const auto part = std::span(cache).subspan(static_cast<std::size_t>(first), out.size());
        std::ranges::copy(part, out.begin());
    }
};

CheckpointReader::CheckpointReader(std::filesystem::path folder)
    : impl_(std::make_unique<Impl>(folder, open_folder(folder), true)) {}

CheckpointReader::CheckpointReader(std::filesystem::path folder, Manifest manifest, bool verifies)
    : impl_(std::make_unique<Impl>(folder, std::move(manifest), verifies)) {}

CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;

const Manifest& CheckpointReader::manifest() const {
    return impl_->manifest;
}

void CheckpointReader::read(State state, std::string_view parameter, std::int64_t begin,
                            std::span<float> out) {
    const TensorEntry& entry = impl_->tensor(state, parameter);
    const std::int64_t end = begin + static_cast<std::int64_t>(out.size());
    if (begin < 0 || end > entry.numel()) {
        throw DataError(fmt::format("{}: {}: elements [{}, {}) are outside of its {}",
                                    impl_->folder.string(), dataset_path(state, parameter), begin,
                                    end, entry.numel()));
    }
    // The last block that begins at or before the range.
    auto block = std::prev(std::ranges::upper_bound(entry.blocks, begin, {}, &Block::begin));
    for (; block != entry.blocks.end() && block->begin < end; ++block) {
        const std::int64_t from = std::max(begin, block->begin);
        const std::int64_t to = std::min(end, block->begin + block->count);
        const auto part = out.subspan(static_cast<std::size_t>(from - begin),
                                      static_cast<std::size_t>(to - from));
        if (!impl_->verifies) {
            impl_->fetch_unverified(entry, from, part);
        } else if (to - from == block->count) {
            impl_->fetch(entry, *block, part);
        } else {
            impl_->copy_cached(entry, *block, from - block->begin, part);
        }
    }
}

FileMapping CheckpointReader::map(const TensorEntry& tensor, const Block& block) {
    impl_->bytes_read += block.count * kElementBytes;
    return map_block(impl_->files, tensor, block);
}

std::int64_t CheckpointReader::bytes_read() const {
    return impl_->bytes_read;
}

}  // namespace fullshard::checkpoint
