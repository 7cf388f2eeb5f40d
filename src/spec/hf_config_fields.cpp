#include "spec/hf_config_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace fullshard::spec {
namespace {

using Json = nlohmann::json;

/// Of a list or an object only the kind: it may be large, and nested deeply.
std::string shown(const Json& value) {
    if (value.is_object()) return "{...}";
    if (value.is_array()) return "[...]";
    return value.dump();
}

}  // namespace

HfFields::HfFields(const Json& object, std::string prefix, std::vector<std::string>& mistakes)
    : object_(object), prefix_(std::move(prefix)), mistakes_(mistakes) {}

const Json* HfFields::find(std::string_view key) const {
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void HfFields::wrong(std::string_view key, std::string_view problem) const {
    const Json* value = find(key);
    mistakes_.push_back(value == nullptr
                            ? fmt::format("{}{} {}", prefix_, key, problem)
                            : fmt::format("{}{} = {} {}", prefix_, key, shown(*value), problem));
}

std::int64_t HfFields::count(std::initializer_list<std::string_view> keys, CountRange range,
                             std::optional<std::int64_t> fallback) const {
    for (const std::string_view key : keys) {
        const Json* value = find(key);
        if (value == nullptr) continue;
        if (value->is_number_unsigned()) {
            const auto number = value->get<std::uint64_t>();
            if (std::cmp_greater_equal(number, range.least) &&
                std::cmp_less_equal(number, range.most)) {
                return static_cast<std::int64_t>(number);
            }
        }
        wrong(key, fmt::format("must be a whole number from {} to {}", range.least, range.most));
        return fallback.value_or(range.least);
    }
    if (!fallback) wrong(*keys.begin(), "is missing");
    return fallback.value_or(range.least);
}

double HfFields::number(std::string_view key, double least, double most,
                        std::optional<double> fallback) const {
    const Json* value = find(key);
    if (value == nullptr) {
        if (!fallback) wrong(key, "is missing");
        return fallback.value_or(least);
    }
    if (value->is_number()) {
        const auto number = value->get<double>();
        if (std::isfinite(number) && number >= least && number <= most) return number;
    }
    wrong(key, fmt::format("must be a number from {} to {}", least, most));
    return fallback.value_or(least);
}

bool HfFields::flag(std::string_view key, bool fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (value->is_boolean()) return value->get<bool>();
    wrong(key, "must be true or false");
    return fallback;
}

std::string HfFields::text(std::string_view key, std::string_view fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return std::string(fallback);
    if (value->is_string()) return value->get<std::string>();
    wrong(key, "must be a text");
    return std::string(fallback);
}

void HfFields::only(std::string_view key, const Json& supported) const {
    const Json* value = find(key);
    if (value != nullptr && *value != supported) {
        wrong(key, fmt::format("is not supported, only {} is", supported.dump()));
    }
}

}  // namespace fullshard::spec
