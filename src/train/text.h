// Quantities as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace fullshard::train {

/// "83 s", "12 min", "3 h 07 min".
std::string duration_text(double seconds);
/// "512 B", "3.4 MiB": powers of 1024.
std::string bytes_text(std::int64_t bytes);
/// 676992 as "677.0 K": powers of 1000.
std::string count_text(std::int64_t count);

}  // namespace fullshard::train
