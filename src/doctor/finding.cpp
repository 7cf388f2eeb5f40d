#include "doctor/finding.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <utility>

namespace fullshard::doctor {

Finding fine(std::string check, std::string measured, std::string required) {
    return {Grade::kOk, std::move(check), std::move(measured), std::move(required), {}};
}

Finding warning(std::string check, std::string measured, std::string required, std::string remedy) {
    return {Grade::kWarning, std::move(check), std::move(measured), std::move(required),
            std::move(remedy)};
}

Finding failure(std::string check, std::string measured, std::string required, std::string remedy) {
    return {Grade::kFailure, std::move(check), std::move(measured), std::move(required),
            std::move(remedy)};
}

std::string to_text(const Finding& finding) {
    constexpr std::string_view kGrades[] = {"ok", "warn", "FAIL"};
    std::string text =
        fmt::format("{:<5} {:<22} {}", kGrades[static_cast<std::size_t>(finding.grade)],
                    finding.check, finding.measured);
    if (!finding.required.empty()) text += fmt::format("; needed: {}", finding.required);
    text += '\n';
    if (!finding.remedy.empty()) text += fmt::format("{:<5} -> {}\n", "", finding.remedy);
    return text;
}

std::string size_text(std::int64_t bytes) {
    constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1024.0 && unit + 1 < std::size(kUnits); ++unit) value /= 1024.0;
    const bool whole = value == std::floor(value);
    return whole ? fmt::format("{:.0f} {}", value, kUnits[unit])
                 : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string rate_text(std::int64_t bytes, double seconds) {
    return fmt::format("{:.2f} GB/s", static_cast<double>(bytes) / seconds * 1e-9);
}

std::string time_text(double seconds) {
    const double size = std::abs(seconds);
    if (size < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
    return size < 1.0 ? fmt::format("{:.1f} ms", seconds * 1e3) : fmt::format("{:.1f} s", seconds);
}

}  // namespace fullshard::doctor
