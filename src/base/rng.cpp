#include "base/rng.h"

#include <cmath>
#include <numbers>

namespace fullshard {

std::uint64_t mix(std::uint64_t seed, std::uint64_t value) {
    std::uint64_t z = seed + 0x9E3779B97F4A7C15ULL * (value + 1);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

std::uint64_t stable_hash(std::string_view text) {
    std::uint64_t hash = 0xCBF29CE484222325ULL;
    for (const char c : text) {
        hash ^= static_cast<unsigned char>(c);
        hash *= 0x100000001B3ULL;
    }
    return hash;
}

std::array<std::uint32_t, 4> RandomStream::block(std::uint64_t index) const {
    return philox4x32(
        {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 0, 0},
        {static_cast<std::uint32_t>(key_), static_cast<std::uint32_t>(key_ >> 32)});
}

namespace {
__extension__ using Product = unsigned __int128;

double unit_interval(std::uint32_t high, std::uint32_t low) {
    const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32) | low;
    return static_cast<double>(bits >> 11) * 0x1.0p-53;
}
}  // namespace

std::uint64_t RandomStream::bits(std::uint64_t index) const {
    const auto b = block(index);
    return (static_cast<std::uint64_t>(b[0]) << 32) | b[1];
}

double RandomStream::uniform(std::uint64_t index) const {
    const auto b = block(index);
    return unit_interval(b[0], b[1]);
}

double RandomStream::normal(std::uint64_t index) const {
    const auto b = block(index);
    const double radius = std::sqrt(-2.0 * std::log(1.0 - unit_interval(b[0], b[1])));
    return radius * std::cos(2.0 * std::numbers::pi * unit_interval(b[2], b[3]));
}

std::uint64_t RandomStream::below(std::uint64_t index, std::uint64_t bound) const {
    const Product product = static_cast<Product>(bits(index)) * bound;
    return static_cast<std::uint64_t>(product >> 64);
}

}  // namespace fullshard
