#include "checkpoint/exchange/rearrange.h"

#include <algorithm>
#include <vector>

namespace fullshard::checkpoint {

void for_each_strip(std::span<const std::int64_t> shape, std::int64_t begin, std::int64_t count,
                    const std::function<void(const Strip&)>& visit) {
    if (count == 0) return;
    const std::int64_t rows = shape[0];
    const std::int64_t columns = shape[1];
    const std::int64_t last = begin + count - 1;
    for (std::int64_t column = 0; column < columns; ++column) {
        // The first and the last row may be there in part.
        const std::int64_t first_row = begin / columns + (column < begin % columns ? 1 : 0);
        const std::int64_t last_row = last / columns - (column > last % columns ? 1 : 0);
        if (first_row > last_row) continue;
        visit({.theirs = column * rows + first_row,
               .in_range = first_row * columns + column - begin,
               .stride = columns,
               .count = last_row - first_row + 1});
    }
}

void read_transposed(const ReadTheirs& read, std::span<const std::int64_t> shape,
                     std::int64_t begin, std::span<float> out) {
    std::vector<float> values;
    for_each_strip(shape, begin, std::ssize(out), [&](const Strip& strip) {
        values.resize(static_cast<std::size_t>(strip.count));
        read(strip.theirs, values);
        std::int64_t at = strip.in_range;
        for (const float value : values) {
            out[static_cast<std::size_t>(at)] = value;
            at += strip.stride;
        }
    });
}

void read_rotary_rows(const ReadTheirs& read, std::span<const std::int64_t> shape,
                      std::int64_t head_size, std::int64_t begin, std::span<float> out) {
    const std::int64_t columns = shape[1];
    const std::int64_t half = head_size / 2;
    while (!out.empty()) {
        const std::int64_t row = begin / columns;
        const std::int64_t column = begin % columns;
        const std::int64_t in_head = row % head_size;
        const std::int64_t their_row = row - in_head + 2 * (in_head % half) + in_head / half;
        const std::int64_t count = std::min(columns - column, std::ssize(out));
        read(their_row * columns + column, out.first(static_cast<std::size_t>(count)));
        out = out.subspan(static_cast<std::size_t>(count));
        begin += count;
    }
}

void read_padded(const ReadTheirs& read, std::int64_t end, std::int64_t begin,
                 std::span<float> out) {
    const std::int64_t count = std::clamp<std::int64_t>(end - begin, 0, std::ssize(out));
    const auto there = out.first(static_cast<std::size_t>(count));
    if (!there.empty()) read(begin, there);
    std::ranges::fill(out.subspan(there.size()), 0.0f);
}

}  // namespace fullshard::checkpoint
