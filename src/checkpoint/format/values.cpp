#include "checkpoint/format/values.h"

#include "base/error.h"
#include "kernels/cast.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace fullshard::checkpoint {

void read_values(const PosixFile& file, std::int64_t offset, DType dtype, std::span<float> out) {
    if (dtype == DType::kFloat32) {
        file.read(offset, std::as_writable_bytes(out));
        return;
    }
    constexpr std::size_t kMostAtOnce = std::size_t{1} << 18;
    std::vector<std::byte> halves(std::min(out.size(), kMostAtOnce) * 2);
    while (!out.empty()) {
        const std::size_t count = std::min(out.size(), kMostAtOnce);
        const std::span<std::byte> bytes(halves.data(), count * 2);
        file.read(offset, bytes);
        TypedSpan source;
        source.data = bytes.data();
        source.count = static_cast<std::int64_t>(count);
        source.dtype = dtype;
        kernels::widen(source, out.first(count));
        offset += std::ssize(bytes);
        out = out.subspan(count);
    }
}

void require_range(const PosixFile& file, std::string_view tensor, std::int64_t numel,
                   std::int64_t begin, std::int64_t count) {
    if (begin >= 0 && begin <= numel && count <= numel - begin) return;
    throw DataError(fmt::format("{}: {}: elements from {} on, {} of them, are outside of its {}",
                                file.path().string(), tensor, begin, count, numel));
}

}  // namespace fullshard::checkpoint
