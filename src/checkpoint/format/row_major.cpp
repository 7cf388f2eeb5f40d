#include "checkpoint/format/row_major.h"

#include "base/error.h"

#include <algorithm>
#include <limits>

namespace fullshard::checkpoint {

std::int64_t numel(std::span<const std::int64_t> shape) {
    std::int64_t product = 1;
    for (const std::int64_t extent : shape) product *= extent;
    return product;
}

std::optional<std::int64_t> checked_numel(std::span<const std::int64_t> shape) {
    std::int64_t product = 1;
    for (const std::int64_t extent : shape) {
        constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / kElementBytes;
        if (extent < 1 || extent > kMost / product) return std::nullopt;
        product *= extent;
    }
    return product;
}

std::vector<Box> boxes_of_range(std::span<const std::int64_t> shape, std::int64_t begin,
                                std::int64_t count) {
    ensure(begin >= 0 && count >= 0 && begin <= numel(shape) - count, "a range lies in its tensor");
    if (shape.empty()) return count == 0 ? std::vector<Box>{} : std::vector<Box>{{{}, {}, 1}};

    // stride[d]: elements from one index of dimension d to the next.
    std::vector<std::int64_t> stride(shape.size(), 1);
    for (std::size_t d = shape.size() - 1; d > 0; --d) stride[d - 1] = stride[d] * shape[d];

    std::vector<Box> boxes;
    while (count > 0) {
        // The outermost dimension at which the range starts on a border and has a whole slice left.
        std::size_t split = 0;
        while (begin % stride[split] != 0 || count < stride[split]) ++split;
        Box box{std::vector<std::int64_t>(shape.size()), {shape.begin(), shape.end()}, 0};
        for (std::size_t d = 0; d < shape.size(); ++d) {
            box.start[d] = begin / stride[d] % shape[d];
            if (d < split) box.extent[d] = 1;
        }
        box.extent[split] = std::min(count / stride[split], shape[split] - box.start[split]);
        box.count = box.extent[split] * stride[split];
        begin += box.count;
        count -= box.count;
        boxes.push_back(std::move(box));
    }
    return boxes;
}

}  // namespace fullshard::checkpoint
