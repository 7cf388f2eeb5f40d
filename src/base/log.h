// The run's log: console and run.log on rank 0, warnings of other ranks on their standard error.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string_view>

namespace spdlog {
class logger;
}

namespace fullshard {

/// Writes timed lines. Construct one a rank and hand it to who needs it; there is no global log.
class Log {
  public:
    /// Rank 0 writes to the console; other ranks write warnings and errors only.
    explicit Log(int rank);
    ~Log();
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;

    /// Rank 0 also appends to `path` from here on; other ranks ignore the call.
    void append_to(const std::filesystem::path& path);

    template <typename... Args>
    void info(fmt::format_string<Args...> format, Args&&... args) {
        write_info(fmt::format(format, std::forward<Args>(args)...));
    }
    template <typename... Args>
    void warn(fmt::format_string<Args...> format, Args&&... args) {
        write_warning(fmt::format(format, std::forward<Args>(args)...));
    }

    /// Writes to the file only: errors reach the console when the program ends.
    void record_error(std::string_view line);

  private:
    void write_info(std::string_view line);
    void write_warning(std::string_view line);

    int rank_;
    std::shared_ptr<spdlog::logger> logger_;
    std::shared_ptr<spdlog::logger> file_logger_;  ///< null without a file
};

}  // namespace fullshard
