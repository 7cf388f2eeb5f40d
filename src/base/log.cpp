#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace fullshard {

namespace {
constexpr auto kPattern = "%H:%M:%S %^%L%$ %v";

spdlog::sink_ptr console_sink(int rank) {
    if (rank == 0) return std::make_shared<spdlog::sinks::stdout_sink_st>();
    return std::make_shared<spdlog::sinks::stderr_sink_st>();
}
}  // namespace

Log::Log(int rank)
    : rank_(rank), logger_(std::make_shared<spdlog::logger>("fullshard", console_sink(rank))) {
    logger_->set_pattern(kPattern);
    logger_->set_level(rank == 0 ? spdlog::level::info : spdlog::level::warn);
    logger_->flush_on(spdlog::level::info);
}

Log::~Log() = default;

void Log::append_to(const std::filesystem::path& path) {
    if (rank_ != 0) return;
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_st>(path.string());
    sink->set_pattern("%Y-%m-%d " + std::string(kPattern));
    logger_->sinks().push_back(sink);
    file_logger_ = std::make_shared<spdlog::logger>("file", std::move(sink));
    file_logger_->flush_on(spdlog::level::err);
}

void Log::record_error(std::string_view line) {
    if (file_logger_) file_logger_->error(line);
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

}  // namespace fullshard
