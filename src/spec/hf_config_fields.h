// Reading the fields of a config.json, all mistakes at once.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::spec {

/// Whole numbers from `least` to `most`.
struct CountRange {
    std::int64_t least = 1;
    std::int64_t most = 0;
};

/// One object of the document. Fields that are null count as absent. Getters note what is wrong
/// with a field and go on with a value in range; finish() tells.
class HfFields {
  public:
    /// `prefix` stands before the names in messages; `mistakes` outlives the object.
    HfFields(const nlohmann::json& object, std::string prefix, std::vector<std::string>& mistakes);

    bool has(std::string_view key) const { return find(key) != nullptr; }
    const nlohmann::json* find(std::string_view key) const;
    /// The field under the first of `keys` that is there; without a fallback one of them must be.
    std::int64_t count(std::initializer_list<std::string_view> keys, CountRange range,
                       std::optional<std::int64_t> fallback = std::nullopt) const;
    /// A finite number from `least` to `most`.
    double number(std::string_view key, double least, double most,
                  std::optional<double> fallback) const;
    bool flag(std::string_view key, bool fallback) const;
    std::string text(std::string_view key, std::string_view fallback) const;
    /// The field is absent or has this value.
    void only(std::string_view key, const nlohmann::json& supported) const;
    /// Notes "KEY = VALUE: `problem`".
    void wrong(std::string_view key, std::string_view problem) const;

  private:
    const nlohmann::json& object_;
    std::string prefix_;
    std::vector<std::string>& mistakes_;
};

}  // namespace fullshard::spec
