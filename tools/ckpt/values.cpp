#include "ckpt/values.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

namespace fullshard::ckpt {
namespace {

[[noreturn]] void refuse(const std::string& option, const std::string& text,
                         std::string_view allowed) {
    throw UsageError(fmt::format("{} {}: must be {}", option, text, allowed));
}

/// The number in front, and what follows it.
template <typename Number>
std::optional<Number> number_before(std::string_view& text) {
    Number value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return value;
}

struct Unit {
    std::string_view name;
    std::int64_t bytes;
};
constexpr std::array kUnits{
    Unit{"", 1},
    Unit{"KB", 1'000},
    Unit{"MB", 1'000'000},
    Unit{"GB", 1'000'000'000},
    Unit{"TB", 1'000'000'000'000},
    Unit{"K", std::int64_t{1} << 10},
    Unit{"M", std::int64_t{1} << 20},
    Unit{"G", std::int64_t{1} << 30},
    Unit{"T", std::int64_t{1} << 40},
    Unit{"KiB", std::int64_t{1} << 10},
    Unit{"MiB", std::int64_t{1} << 20},
    Unit{"GiB", std::int64_t{1} << 30},
    Unit{"TiB", std::int64_t{1} << 40},
};

}  // namespace

double parse_tolerance(const std::string& option, const std::string& text) {
    std::string_view rest = text;
    const auto value = number_before<double>(rest);
    if (!value || !rest.empty() || !std::isfinite(*value) || *value < 0) {
        refuse(option, text, "a number, zero or more");
    }
    return *value;
}

int parse_threads(const std::string& option, const std::string& text) {
    std::string_view rest = text;
    const auto value = number_before<int>(rest);
    if (!value || !rest.empty() || *value < 1 || *value > 256) {
        refuse(option, text, "a whole number from 1 to 256");
    }
    return *value;
}

std::int64_t parse_bytes(const std::string& option, const std::string& text) {
    std::string_view rest = text;
    const auto value = number_before<std::int64_t>(rest);
    const auto* unit = std::ranges::find(kUnits, rest, &Unit::name);
    if (!value || *value < 1 || unit == kUnits.end() || *value > INT64_MAX / unit->bytes) {
        refuse(option, text, "a size such as 256M or 5GB");
    }
    return *value * unit->bytes;
}

DType parse_dtype(const std::string& option, const std::string& text) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
        if (text == name_of(dtype)) return dtype;
    }
    refuse(option, text, "fp32, bf16 or fp16");
}

checkpoint::FileFormat parse_format(const std::string& option, const std::string& text) {
    const auto format = checkpoint::format_named(text);
    if (!format) refuse(option, text, "hdf5, safetensors, pt, hf or llmc");
    return *format;
}

}  // namespace fullshard::ckpt
