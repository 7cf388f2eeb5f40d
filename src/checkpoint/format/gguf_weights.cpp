#include "checkpoint/format/gguf_weights.h"

#include "base/error.h"
#include "checkpoint/format/row_major.h"
#include "checkpoint/format/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace fullshard::checkpoint {
namespace {

void read_blocks(const PosixFile& file, const GgufTensor& tensor, std::int64_t begin,
                 std::span<float> out) {
    constexpr std::int64_t kBlocksAtOnce = 512;
    const GgufBlock& block = block_of(tensor.type);
    const auto elements = static_cast<std::size_t>(block.elements);
    std::vector<std::byte> bytes;
    std::array<float, kMostGgufBlockElements> numbers;
    const std::span<float> whole(numbers.data(), elements);
    std::int64_t index = begin / block.elements;
    const std::int64_t last = (begin + std::ssize(out) - 1) / block.elements;
    auto skip = static_cast<std::size_t>(begin % block.elements);
    while (!out.empty()) {
        const std::int64_t count = std::min(kBlocksAtOnce, last - index + 1);
        bytes.resize(static_cast<std::size_t>(count * block.bytes));
        file.read(tensor.file_offset + index * block.bytes, bytes);
        for (std::int64_t i = 0; i < count; ++i) {
            const std::byte* source = bytes.data() + i * block.bytes;
            const std::size_t used = std::min(elements - skip, out.size());
            if (used == elements) {
                dequantise(tensor.type, source, out.first(elements));
            } else {
                dequantise(tensor.type, source, whole);
                std::ranges::copy(whole.subspan(skip, used), out.begin());
            }
            out = out.subspan(used);
            skip = 0;
        }
        index += count;
    }
}

}  // namespace

GgufWeights::GgufWeights(const std::filesystem::path& path) : file_(PosixFile::open(path)) {
    for (GgufTensor& tensor : read_gguf_header(file_).tensors) {
        tensors_.push_back({tensor.name, tensor.shape});
        places_.emplace(tensor.name, std::move(tensor));
    }
}

void GgufWeights::read(std::string_view parameter, std::int64_t begin, std::span<float> out) {
    const auto found = places_.find(parameter);
    if (found == places_.end()) {
        throw DataError(fmt::format("{} has no tensor {}", file_.path().string(), parameter));
    }
    const GgufTensor& tensor = found->second;
    require_range(file_, parameter, numel(tensor.shape), begin, std::ssize(out));
    if (out.empty()) return;
    if (const auto plain = block_of(tensor.type).plain) {
        read_values(file_, tensor.file_offset + begin * size_of(*plain), *plain, out);
    } else {
        read_blocks(file_, tensor, begin, out);
    }
}

}  // namespace fullshard::checkpoint
