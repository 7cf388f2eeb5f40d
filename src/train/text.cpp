#include "train/text.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>

namespace fullshard::train {

namespace {

std::string scaled(double value, double step, const std::array<std::string_view, 5>& units) {
    std::size_t unit = 0;
    while (value >= step && unit + 1 < units.size()) {
        value /= step;
        ++unit;
    }
    return unit == 0 ? fmt::format("{:.0f}{}", value, units[0])
                     : fmt::format("{:.1f}{}", value, units[unit]);
}

}  // namespace

std::string duration_text(double seconds) {
    const auto whole = static_cast<std::int64_t>(std::llround(seconds));
    if (whole < 120) return fmt::format("{} s", whole);
    const std::int64_t minutes = (whole + 30) / 60;
    if (minutes < 120) return fmt::format("{} min", minutes);
    return fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
}

std::string bytes_text(std::int64_t bytes) {
    return scaled(static_cast<double>(bytes), 1024.0, {" B", " KiB", " MiB", " GiB", " TiB"});
}

std::string count_text(std::int64_t count) {
    return scaled(static_cast<double>(count), 1000.0, {"", " K", " M", " G", " T"});
}

}  // namespace fullshard::train
