// Writing a large file while its earlier parts are on their way to the disk.
#pragma once

#include "checkpoint/format/posix_file.h"

#include <cstdint>
#include <deque>

namespace fullshard::checkpoint {

/// Keeps the disk busy from the first write on, and little of the file in the page cache: what has
/// reached the disk is dropped there. So a save pushes out nothing that training reads, and the
/// next writes take pages that were just freed; fresh ones are several times slower where the host
/// of a virtual machine must find them first.
class WriteBehind {
  public:
    /// `file` outlives the object.
    explicit WriteBehind(const PosixFile& file) : file_(file) {}

    /// A range has been written. Starts to bring it to disk, and waits for earlier ranges while
    /// more than 16 MiB are under way. Throws RunError when the disk refuses them. The end of the
    /// file's writing is a sync, as ever.
    void wrote(std::int64_t offset, std::int64_t bytes);

  private:
    struct Range {
        std::int64_t offset = 0;
        std::int64_t bytes = 0;
    };

    const PosixFile& file_;
    std::deque<Range> under_way_;
    std::int64_t bytes_under_way_ = 0;
};

}  // namespace fullshard::checkpoint
