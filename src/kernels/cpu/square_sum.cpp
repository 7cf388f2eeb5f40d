#include "kernels/square_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace fullshard::kernels {
namespace {

constexpr int kMantissaBits = 23;
constexpr std::uint32_t kMantissaMask = (1u << kMantissaBits) - 1;
constexpr std::size_t kExponents = 256;
constexpr std::uint32_t kNonFinite = kExponents - 1;
constexpr int kUnitExponent = -298;  // 2 * -149: the square of the smallest float

// Squares are first added per biased exponent, without shifts or carries. Neighbouring values go to
// different tables, since gradients share few exponents and a sum waits for the one before it.
constexpr std::size_t kTables = 4;
using Tables = std::array<std::array<std::uint64_t, kExponents>, kTables>;

// A square is below 2^48, so 2^16 of them fit into the 64 bits of a table's entry.
constexpr std::size_t kChunk = kTables << 16;

struct NonFinite {
    std::int64_t infinities = 0;
    std::int64_t nans = 0;
};

inline void add_square(float value, std::array<std::uint64_t, kExponents>& table, NonFinite& bad) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t exponent = (bits >> kMantissaBits) & 0xff;
    const std::uint32_t fraction = bits & kMantissaMask;
    if (exponent == kNonFinite) [[unlikely]] {
        ++(fraction == 0 ? bad.infinities : bad.nans);
        return;
    }
    // Subnormal numbers have no hidden bit.
    const std::uint64_t mantissa = fraction | (std::uint32_t{exponent != 0} << kMantissaBits);
    table[exponent] += mantissa * mantissa;
}

using WeightBins = std::span<std::int64_t, SquareSum::kWeightBins>;

// Moves what exceeds 32 bits of each bin into the next one. The last bin keeps its carry: the sum
// never reaches it (2^63 squares below 2^554 units are below 2^617, the last bin starts at 2^608).
void propagate_carries(WeightBins bins) {
    for (std::size_t i = 0; i + 1 < bins.size(); ++i) {
        bins[i + 1] += bins[i] >> 32;
        bins[i] &= 0xffffffff;
    }
}

// Adds each entry at its weight. One call adds fewer than kTables * kExponents numbers of 32 bits
// to a bin, less than 2^42 in all: far from overflow, whether the bins are normalised or were
// added over ranks.
void add_tables(const Tables& tables, WeightBins bins) {
    for (std::size_t exponent = 0; exponent < kNonFinite; ++exponent) {
        // Exponents 0 (subnormal) and 1 have the same weight; each further one weighs 2^2 more.
        const std::size_t position = 2 * (exponent == 0 ? 0 : exponent - 1);
        const std::size_t bin = position / 32, shift = position % 32;
        for (const auto& table : tables) {
            const std::uint64_t low = (table[exponent] & 0xffffffff) << shift;
            const std::uint64_t high = (table[exponent] >> 32) << shift;
            bins[bin] += static_cast<std::int64_t>(low & 0xffffffff);
            bins[bin + 1] += static_cast<std::int64_t>((low >> 32) + (high & 0xffffffff));
            bins[bin + 2] += static_cast<std::int64_t>(high >> 32);
        }
    }
}

}  // namespace

void SquareSum::add(std::span<const float> values) {
    const auto weights = std::span(bins_).first<kWeightBins>();
    NonFinite bad;
    for (std::size_t begin = 0; begin < values.size(); begin += kChunk) {
        const auto chunk = values.subspan(begin, std::min(kChunk, values.size() - begin));
        Tables tables{};
        std::size_t i = 0;
        for (; i + kTables <= chunk.size(); i += kTables) {
            add_square(chunk[i], tables[0], bad);
            add_square(chunk[i + 1], tables[1], bad);
            add_square(chunk[i + 2], tables[2], bad);
            add_square(chunk[i + 3], tables[3], bad);
        }
        for (; i < chunk.size(); ++i) add_square(chunk[i], tables[0], bad);
        add_tables(tables, weights);
        propagate_carries(weights);
    }
    bins_[kWeightBins] += bad.infinities;
    bins_[kWeightBins + 1] += bad.nans;
}

double SquareSum::value() const {
    if (nans() > 0) return std::numeric_limits<double>::quiet_NaN();
    if (infinities() > 0) return std::numeric_limits<double>::infinity();

    std::array<std::int64_t, kWeightBins> bins;
    std::copy_n(bins_.begin(), kWeightBins, bins.begin());
    propagate_carries(bins);

    int top = kWeightBins - 1;
    while (top >= 0 && bins[top] == 0) --top;
    if (top < 0) return 0.0;

    // The 64 bits from the leading one downwards; every bit below them only decides ties, so it is
    // enough to know whether one is set. The conversion then rounds once, to 53 bits.
    const auto bin = [&](int i) { return i < 0 ? 0 : static_cast<std::uint64_t>(bins[i]); };
    const int skipped = std::countl_zero(static_cast<std::uint32_t>(bin(top)));
    const std::uint64_t next = bin(top - 2) << skipped;
    std::uint64_t leading = (bin(top) << 32 | bin(top - 1)) << skipped | next >> 32;
    bool rest = (next & 0xffffffff) != 0;
    for (int i = 0; i < top - 2; ++i) rest |= bins[i] != 0;
    leading |= std::uint64_t{rest};
    return std::ldexp(static_cast<double>(leading), 32 * (top - 1) - skipped + kUnitExponent);
}

}  // namespace fullshard::kernels
