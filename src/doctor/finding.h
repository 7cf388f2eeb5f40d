// What one check found, and how it is told.
#pragma once

#include <cstdint>
#include <string>

namespace fullshard::doctor {

enum class Grade : std::uint8_t { kOk, kWarning, kFailure };

struct Finding {
    Grade grade = Grade::kOk;
    std::string check;          ///< its name, a few words
    std::string measured;       ///< what is there
    std::string required = {};  ///< what is needed; may be empty
    std::string remedy = {};    ///< one line; empty where all is well
};

Finding fine(std::string check, std::string measured, std::string required = {});
/// A run will work, but not as well as it could.
Finding warning(std::string check, std::string measured, std::string required, std::string remedy);
/// A run will fail, or its results cannot be trusted.
Finding failure(std::string check, std::string measured, std::string required, std::string remedy);

/// "ok    clocks  ...; needed: ...", and for anything but ok a second line with the remedy. Ends
/// with a line break.
std::string to_text(const Finding& finding);

/// "512 KiB", "64 MiB", "12.3 GiB": of bytes, at most one decimal.
std::string size_text(std::int64_t bytes);
/// "0.42 GB/s": of bytes in seconds, powers of 1000.
std::string rate_text(std::int64_t bytes, double seconds);
/// "3.1 us", "12.3 ms" or "1.2 s".
std::string time_text(double seconds);

}  // namespace fullshard::doctor
