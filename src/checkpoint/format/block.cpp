#include "checkpoint/format/block.h"

#include "base/error.h"
#include "checkpoint/format/row_major.h"

#include <fmt/format.h>

#include <algorithm>

namespace fullshard::checkpoint {

std::vector<Block> digest_blocks(std::int64_t begin, std::span<const float> values,
                                 std::int64_t max_block_bytes) {
    const auto most = static_cast<std::size_t>(max_block_bytes / kElementBytes);
    ensure(most > 0, "a block holds one element at least");
    std::vector<Block> blocks;
    while (!values.empty()) {
        const auto piece = values.first(std::min(most, values.size()));
        const auto count = static_cast<std::int64_t>(piece.size());
        blocks.push_back({begin, count, digest(piece.data(), piece.size_bytes())});
        begin += count;
        values = values.subspan(piece.size());
    }
    return blocks;
}

namespace {

/// A block in its file, and what is wrong with it.
class BlockInFile {
  public:
    BlockInFile(DataFiles& files, const TensorEntry& tensor, const Block& block)
        : tensor_(tensor),
          block_(block),
          part_(tensor.part_with(block.begin)),
          file_(files.open(part_.file)) {}

    const PosixFile& file() const { return *file_; }
    std::int64_t offset() const {
        return part_.file_offset + (block_.begin - part_.begin) * kElementBytes;
    }
    [[noreturn]] void fail(std::string_view problem) const {
        throw DataError(fmt::format("{}: {}, elements [{}, {}): {}", file_->path().string(),
                                    dataset_path(tensor_.state, tensor_.parameter), block_.begin,
                                    block_.begin + block_.count, problem));
    }
    void verify(std::span<const std::byte> bytes) const {
        const std::uint64_t found = digest(bytes.data(), bytes.size());
        if (found == block_.digest) return;
        fail(fmt::format("damaged: the digest is {}, the manifest says {}", digest_text(found),
                         digest_text(block_.digest)));
    }

  private:
    const TensorEntry& tensor_;
    const Block& block_;
    const Part& part_;
    std::shared_ptr<const PosixFile> file_;
};

}  // namespace

FileMapping map_block(DataFiles& files, const TensorEntry& tensor, const Block& block) {
    const BlockInFile place(files, tensor, block);
    const auto map = [&] {
        try {
            return place.file().map(place.offset(), block.count * kElementBytes);
        } catch (const DataError& error) {
            place.fail(error.what());
        }
    };
    FileMapping mapping = map();
    place.verify(mapping.bytes());
    return mapping;
}

void read_block(DataFiles& files, const TensorEntry& tensor, const Block& block,
                std::span<float> out) {
    ensure(static_cast<std::int64_t>(out.size()) == block.count, "a block is read whole");
    const BlockInFile place(files, tensor, block);
    try {
        place.file().read(place.offset(), std::as_writable_bytes(out));
    } catch (const DataError& error) {
        place.fail(error.what());
    }
    place.verify(std::as_bytes(out));
}

}  // namespace fullshard::checkpoint
