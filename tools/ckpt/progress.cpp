#include "ckpt/progress.h"

#include "base/clock.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace fullshard::ckpt {
namespace {

constexpr std::int64_t kLargeBytes = std::int64_t{1} << 30;
constexpr double kSecondsBetweenUpdates = 0.2;

}  // namespace

ProgressLine::ProgressLine(std::string what)
    : what_(std::move(what)), terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
    if (line_open_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::update(std::int64_t done_bytes, std::int64_t total_bytes) {
    const double share = static_cast<double>(done_bytes) / static_cast<double>(total_bytes);
    const std::string line = fmt::format("{} {:3.0f} % of {:.1f} MiB", what_, 100 * share,
                                         static_cast<double>(total_bytes) / (1 << 20));
    if (terminal_) {
        const double now = now_seconds();
        if (now - last_ < kSecondsBetweenUpdates) return;
        last_ = now;
        fmt::print(stderr, "\r{}", line);
        std::fflush(stderr);
        line_open_ = true;
    } else if (total_bytes >= kLargeBytes && static_cast<std::int64_t>(10 * share) > tenths_) {
        tenths_ = static_cast<std::int64_t>(10 * share);
        fmt::print(stderr, "{}\n", line);
    }
}

}  // namespace fullshard::ckpt
