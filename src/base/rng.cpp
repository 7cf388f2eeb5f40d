#include "base/rng.h"

#include <cmath>
#include <numbers>

namespace fullshard {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
    constexpr std::uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
    constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t product0 = kMultiplier0 * counter[0];
        const std::uint64_t product1 = kMultiplier1 * counter[2];
        counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
                   static_cast<std::uint32_t>(product1),
                   static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
                   static_cast<std::uint32_t>(product0)};
        key[0] += kWeyl0;
        key[1] += kWeyl1;
    }
    return counter;
}

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
