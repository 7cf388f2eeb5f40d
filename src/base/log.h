// The run's log: console and run.log on rank 0, warnings of other ranks on their standard error,
// and a file of each rank's own where that is wanted.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace spdlog {
class logger;
}

namespace fullshard {

/// Writes timed lines. Construct one a rank and hand it to who needs it; there is no global log.
/// A line that a file does not take (a full disk) is lost but does not end the run: the first such
/// failure is told on standard error, and lost_lines() counts them.
class Log {
  public:
    /// Rank 0 writes to the console; other ranks write warnings and errors only.
    explicit Log(int rank);
    ~Log();
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;

    /// Rank 0 also appends to `path` from here on; other ranks ignore the call. Throws RunError
    /// when the file cannot be opened.
    void append_to(const std::filesystem::path& path);
    /// This rank, whichever it is, also appends all its lines to `path`, whose folder is made when
    /// it is missing. Throws RunError.
    void keep_own(const std::filesystem::path& path);

    template <typename... Args>
    void info(fmt::format_string<Args...> format, Args&&... args) {
        write_info(fmt::format(format, std::forward<Args>(args)...));
    }
    template <typename... Args>
    void warn(fmt::format_string<Args...> format, Args&&... args) {
        write_warning(fmt::format(format, std::forward<Args>(args)...));
    }

    /// Writes to the files only: errors reach the console when the program ends.
    void record_error(std::string_view line);

    std::int64_t lost_lines() const { return lost_lines_; }

  private:
    void add_file(const std::filesystem::path& path);
    void write_info(std::string_view line);
    void write_warning(std::string_view line);
    void count_loss(const std::string& cause);

    int rank_;
    std::int64_t lost_lines_ = 0;
    std::shared_ptr<spdlog::logger> logger_;
    std::shared_ptr<spdlog::logger> file_logger_;  ///< without the console
};

}  // namespace fullshard
