#include "checkpoint/format/write_behind.h"

namespace fullshard::checkpoint {

void WriteBehind::wrote(std::int64_t offset, std::int64_t bytes) {
    // Four blocks: with two the disk runs dry now and then, sixteen are no faster.
    constexpr std::int64_t kMostUnderWay = std::int64_t{16} << 20;
    file_.start_writeback(offset, bytes);
    under_way_.push_back({offset, bytes});
    bytes_under_way_ += bytes;
    while (bytes_under_way_ > kMostUnderWay) {
        const Range first = under_way_.front();
        under_way_.pop_front();
        file_.finish_writeback(first.offset, first.bytes);
        bytes_under_way_ -= first.bytes;
    }
}

}  // namespace fullshard::checkpoint
