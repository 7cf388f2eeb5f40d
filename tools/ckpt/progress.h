// Progress of long jobs on standard error.
#pragma once

#include <cstdint>
#include <string>

namespace fullshard::ckpt {

/// On a terminal one line that is rewritten; else, for a large job, a line every tenth.
class ProgressLine {
  public:
    /// `what` is the line's first word, for example "verify".
    explicit ProgressLine(std::string what);
    ~ProgressLine();
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    void update(std::int64_t done_bytes, std::int64_t total_bytes);

  private:
    std::string what_;
    bool terminal_;
    bool line_open_ = false;
    double last_ = 0;
    std::int64_t tenths_ = 0;
};

}  // namespace fullshard::ckpt
