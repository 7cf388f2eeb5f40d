#include "checkpoint/format/reader.h"

#include "base/error.h"
#include "checkpoint/format/block.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/posix_file.h"
#include "checkpoint/format/row_major.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace fullshard::checkpoint {

struct CheckpointReader::Impl {
    Manifest manifest;
    PosixFile file;
    std::unordered_map<std::string, const TensorEntry*> by_dataset;
    std::vector<float> cache;
    const Block* cached = nullptr;
    std::int64_t bytes_read = 0;

    Impl(const std::filesystem::path& folder, Manifest known)
        : manifest(std::move(known)), file(PosixFile::open(folder / kStateFile)) {
        for (const TensorEntry& tensor : manifest.tensors) {
            by_dataset.emplace(dataset_path(tensor.state, tensor.parameter), &tensor);
        }
    }

    const TensorEntry& tensor(State state, std::string_view parameter) const {
        const std::string dataset = dataset_path(state, parameter);
        const auto found = by_dataset.find(dataset);
        if (found == by_dataset.end()) {
            throw DataError(fmt::format("{} has no tensor {}", file.path().string(), dataset));
        }
        return *found->second;
    }

    void fetch(const TensorEntry& entry, const Block& block, std::span<float> out) {
        bytes_read += block.count * kElementBytes;
        read_block(file, entry, block, out);
    }

    /// The whole block from the cache, read first when another one was there.
    std::span<const float> through_cache(const TensorEntry& entry, const Block& block) {
        if (cached != &block) {
            cached = nullptr;
            cache.resize(static_cast<std::size_t>(block.count));
            fetch(entry, block, cache);
            cached = &block;
        }
        return cache;
    }
};

CheckpointReader::CheckpointReader(std::filesystem::path folder)
    : impl_(std::make_unique<Impl>(folder, open_folder(folder))) {}

CheckpointReader::CheckpointReader(std::filesystem::path folder, Manifest manifest)
    : impl_(std::make_unique<Impl>(folder, std::move(manifest))) {}

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
                                    impl_->file.path().string(), dataset_path(state, parameter),
                                    begin, end, entry.numel()));
    }
    // The last block that begins at or before the range.
    auto block = std::prev(std::ranges::upper_bound(entry.blocks, begin, {}, &Block::begin));
    for (; block != entry.blocks.end() && block->begin < end; ++block) {
        const std::int64_t from = std::max(begin, block->begin);
        const std::int64_t to = std::min(end, block->begin + block->count);
        const auto part = out.subspan(static_cast<std::size_t>(from - begin),
                                      static_cast<std::size_t>(to - from));
        if (to - from == block->count) {
            impl_->fetch(entry, *block, part);
        } else {
            const auto whole = impl_->through_cache(entry, *block);
            std::ranges::copy(
                whole.subspan(static_cast<std::size_t>(from - block->begin), part.size()),
                part.begin());
        }
    }
}

std::int64_t CheckpointReader::bytes_read() const {
    return impl_->bytes_read;
}

}  // namespace fullshard::checkpoint
