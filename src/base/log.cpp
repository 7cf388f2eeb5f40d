#include "base/log.h"

#include "base/error.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <cstdio>

namespace fullshard {

namespace {
constexpr auto kPattern = "%H:%M:%S %^%L%$ %v";

spdlog::sink_ptr console_sink(int rank) {
    spdlog::sink_ptr sink;
    if (rank == 0) {
        sink = std::make_shared<spdlog::sinks::stdout_sink_st>();
    } else {
        sink = std::make_shared<spdlog::sinks::stderr_sink_st>();
        sink->set_level(spdlog::level::warn);
    }
    sink->set_pattern(kPattern);
    return sink;
}
}  // namespace

Log::Log(int rank)
    : rank_(rank),
      logger_(std::make_shared<spdlog::logger>("fullshard", console_sink(rank))),
      file_logger_(std::make_shared<spdlog::logger>("files")) {
    for (const auto& logger : {logger_, file_logger_}) {
        logger->set_level(spdlog::level::info);
        logger->flush_on(spdlog::level::info);
        logger->set_error_handler([this](const std::string& cause) { count_loss(cause); });
    }
}

Log::~Log() = default;

void Log::append_to(const std::filesystem::path& path) {
    if (rank_ == 0) add_file(path);
}

void Log::keep_own(const std::filesystem::path& path) {
    add_file(path);
}

void Log::add_file(const std::filesystem::path& path) {
    try {
        const auto sink = std::make_shared<spdlog::sinks::basic_file_sink_st>(path.string());
        sink->set_pattern("%Y-%m-%d " + std::string(kPattern));
        logger_->sinks().push_back(sink);
        file_logger_->sinks().push_back(sink);
    } catch (const spdlog::spdlog_ex& error) {
        throw RunError(fmt::format("cannot open the log {}: {}", path.string(), error.what()));
    }
}

void Log::record_error(std::string_view line) {
    file_logger_->error(line);
}

void Log::write_info(std::string_view line) {
    logger_->info(line);
}

void Log::write_warning(std::string_view line) {
    if (rank_ == 0) {
        logger_->warn(line);
    } else {
        logger_->warn("rank {}: {}", rank_, line);
    }
}

void Log::count_loss(const std::string& cause) {
    if (++lost_lines_ > 1) return;
    const std::string line = fmt::format(
        "fullshard: rank {}: the log is not complete, lines are lost from here on: {}\n", rank_,
        cause);
    std::fputs(line.c_str(), stderr);
}

}  // namespace fullshard
