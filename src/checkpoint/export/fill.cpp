#include "checkpoint/export/fill.h"

#include "base/error.h"
#include "checkpoint/exchange/rearrange.h"
#include "checkpoint/format/row_major.h"
#include "kernels/cast.h"

#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <optional>

namespace fullshard::checkpoint {
namespace {

struct Piece {
    std::size_t tensor = 0;
    const Block* block = nullptr;
    std::int64_t count = 0;  ///< of the block's elements, from its first on
};

std::vector<Piece> cut_into_pieces(std::span<const ExportTensor> tensors) {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const std::int64_t end = tensors[i].numel();
        for (const Block& block : tensors[i].source->blocks) {
            if (block.begin >= end) continue;
            pieces.push_back({i, &block, std::min(block.count, end - block.begin)});
        }
    }
    return pieces;
}

/// Elements of `size` bytes of a range, strip by strip as the transposed tensor has them.
std::vector<std::byte> in_strips(std::span<const std::byte> range, const ExportTensor& tensor,
                                 const Piece& piece) {
    const std::int64_t size = size_of(tensor.dtype);
    std::vector<std::byte> strips(range.size());
    std::byte* to = strips.data();
    for_each_strip(tensor.source->shape, piece.block->begin, piece.count, [&](const Strip& strip) {
        const std::byte* from = range.data() + strip.in_range * size;
        for (std::int64_t i = 0; i < strip.count; ++i) {
            std::memcpy(to, from, static_cast<std::size_t>(size));
            to += size;
            from += strip.stride * size;
        }
    });
    return strips;
}

/// Finite values that the cast made infinite.
std::int64_t count_overflows(std::span<const float> values, TypedSpan cast) {
    if (cast.dtype == DType::kFloat32) return 0;
    const unsigned infinity = cast.dtype == DType::kBFloat16 ? 0x7f80 : 0x7c00;
    std::int64_t count = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, cast.data + 2 * i, 2);
        count += static_cast<std::int64_t>((bits & 0x7fffu) == infinity && !std::isinf(values[i]));
    }
    return count;
}

std::uint32_t crc_of(std::span<const std::byte> bytes) {
    return static_cast<std::uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

class Filler {
  public:
    Filler(CheckpointReader& reader, std::span<const ExportTensor> tensors,
           std::span<const std::int64_t> offsets, const PosixFile& out, Journal& journal,
           bool with_crcs)
        : reader_(reader),
          tensors_(tensors),
          offsets_(offsets),
          out_(out),
          journal_(journal),
          pieces_(cut_into_pieces(tensors)),
          overflowed_(pieces_.size()) {
        if (with_crcs) crcs_.resize(pieces_.size());
    }

    void run(int threads, SharedProgress& progress) {
        share_work(std::ssize(pieces_), threads, [&]() -> Worker {
            return [&, buffer = Buffer()](std::int64_t item) mutable {
                if (!keep_earlier(item, buffer)) write(item, buffer);
                progress.add(pieces_[static_cast<std::size_t>(item)].count * kElementBytes);
            };
        });
    }

    Filled result() const {
        Filled filled{.crcs = std::vector<std::uint32_t>(tensors_.size()),
                      .overflowed = std::vector<std::int64_t>(tensors_.size()),
                      .bytes_found = bytes_found_};
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            const std::size_t tensor = pieces_[i].tensor;
            filled.overflowed[tensor] += overflowed_[i];
            if (crcs_.empty()) continue;
            filled.crcs[tensor] = static_cast<std::uint32_t>(
                crc32_combine(filled.crcs[tensor], crcs_[i], bytes_of(pieces_[i])));
        }
        return filled;
    }

  private:
    /// Bytes as they are in the output, where they are not those of the input.
    using Buffer = std::vector<std::byte>;

    std::int64_t bytes_of(const Piece& piece) const {
        return piece.count * size_of(tensors_[piece.tensor].dtype);
    }
    /// Calls `move` with the file's offset and the part of `bytes` that belongs there.
    template <typename Byte, typename Move>
    void place(const Piece& piece, std::span<Byte> bytes, Move move) const {
        const ExportTensor& tensor = tensors_[piece.tensor];
        const std::int64_t offset = offsets_[piece.tensor];
        const std::int64_t size = size_of(tensor.dtype);
        if (!tensor.transposed) return move(offset + piece.block->begin * size, bytes);
        for_each_strip(tensor.source->shape, piece.block->begin, piece.count,
                       [&](const Strip& strip) {
                           const auto length = static_cast<std::size_t>(strip.count * size);
                           move(offset + strip.theirs * size, bytes.first(length));
                           bytes = bytes.subspan(length);
                       });
    }

    /// False when there is nothing from earlier, or nothing good.
    bool keep_earlier(std::int64_t item, Buffer& buffer) {
        const auto found = journal_.earlier().find(item);
        if (found == journal_.earlier().end()) return false;
        const Piece& piece = pieces_[static_cast<std::size_t>(item)];
        buffer.resize(static_cast<std::size_t>(bytes_of(piece)));
        try {
            place(piece, std::span(buffer),
                  [&](std::int64_t offset, std::span<std::byte> part) { out_.read(offset, part); });
        } catch (const DataError&) {
            return false;
        }
        if (digest(buffer.data(), buffer.size()) != found->second.digest) return false;
        note(item, found->second.overflowed, buffer);
        bytes_found_ += bytes_of(piece);
        return true;
    }

    void write(std::int64_t item, Buffer& buffer) {
        const Piece& piece = pieces_[static_cast<std::size_t>(item)];
        const ExportTensor& tensor = tensors_[piece.tensor];
        // Straight from the file's pages: one copy less than through a buffer.
        const FileMapping mapped = reader_.map(*tensor.source, *piece.block);
        std::span<const std::byte> bytes =
            mapped.bytes().first(static_cast<std::size_t>(piece.count * kElementBytes));
        std::int64_t overflowed = 0;
        if (tensor.dtype != DType::kFloat32) {
            // HDF5 places data at multiples of eight bytes, and parts begin with whole elements.
            const std::span values(reinterpret_cast<const float*>(bytes.data()),
                                   static_cast<std::size_t>(piece.count));
            buffer.resize(values.size() * 2);
            TypedSpan cast;
            cast.data = buffer.data();
            cast.count = piece.count;
            cast.dtype = tensor.dtype;
            kernels::narrow(values, cast);
            bytes = buffer;
            overflowed = count_overflows(values, cast);
        }
        if (tensor.transposed) {
            buffer = in_strips(bytes, tensor, piece);
            bytes = buffer;
        }
        place(piece, bytes, [&](std::int64_t offset, std::span<const std::byte> part) {
            out_.write_at(offset, part);
            if (!tensor.transposed) out_.start_writeback(offset, std::ssize(part));
        });
        note(item, overflowed, bytes);
        const bool as_it_was =
            bytes.data() == mapped.bytes().data() && piece.count == piece.block->count;
        journal_.add(item, {as_it_was ? piece.block->digest : digest(bytes.data(), bytes.size()),
                            overflowed});
    }

    void note(std::int64_t item, std::int64_t overflowed, std::span<const std::byte> bytes) {
        const auto i = static_cast<std::size_t>(item);
        overflowed_[i] = overflowed;
        if (!crcs_.empty()) crcs_[i] = crc_of(bytes);
    }

    CheckpointReader& reader_;
    std::span<const ExportTensor> tensors_;
    std::span<const std::int64_t> offsets_;
    const PosixFile& out_;
    Journal& journal_;
    std::vector<Piece> pieces_;
    std::vector<std::int64_t> overflowed_;
    std::vector<std::uint32_t> crcs_;
    std::atomic<std::int64_t> bytes_found_ = 0;
};

}  // namespace

Filled fill(CheckpointReader& reader, std::span<const ExportTensor> tensors,
            std::span<const std::int64_t> offsets, const PosixFile& out, Journal& journal,
            bool with_crcs, int threads, SharedProgress& progress) {
    Filler filler(reader, tensors, offsets, out, journal, with_crcs);
    filler.run(threads, progress);
    return filler.result();
}

}  // namespace fullshard::checkpoint
