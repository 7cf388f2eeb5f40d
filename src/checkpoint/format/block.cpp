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

void read_block(DataFiles& files, const TensorEntry& tensor, const Block& block,
                std::span<float> out) {
    ensure(static_cast<std::int64_t>(out.size()) == block.count, "a block is read whole");
    const Part& part = tensor.part_with(block.begin);
    const std::shared_ptr<const PosixFile> file = files.open(part.file);
    const auto fail = [&](std::string_view problem) {
        throw DataError(fmt::format("{}: {}, elements [{}, {}): {}", file->path().string(),
                                    dataset_path(tensor.state, tensor.parameter), block.begin,
                                    block.begin + block.count, problem));
    };
    try {
        file->read(part.file_offset + (block.begin - part.begin) * kElementBytes,
                   std::as_writable_bytes(out));
    } catch (const DataError& error) {
        fail(error.what());
    }
    const std::uint64_t found = digest(out.data(), out.size_bytes());
    if (found != block.digest) {
        fail(fmt::format("damaged: the digest is {}, the manifest says {}", digest_text(found),
                         digest_text(block.digest)));
    }
}

}  // namespace fullshard::checkpoint
