#include "kernels/square_sum.h"

#include "kernels/cpu/simd_clones.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace fullshard::kernels {
namespace {

constexpr int kMantissaBits = 23;
constexpr std::uint32_t kMantissaMask = (1u << kMantissaBits) - 1;
constexpr std::size_t kExponents = 256;
constexpr std::uint32_t kNonFinite = kExponents - 1;
constexpr int kUnitExponent = -298;  // 2 * -149: the square of the smallest float

struct NonFinite {
    std::int64_t infinities = 0;
    std::int64_t nans = 0;
};

using WeightBins = std::span<std::int64_t, SquareSum::kWeightBins>;

// Moves what exceeds 32 bits of each bin into the next one. The last bin keeps its carry: the sum
// never reaches it (2^63 squares below 2^554 units are below 2^617, the last bin starts at 2^608).
void propagate_carries(WeightBins bins) {
    for (std::size_t i = 0; i + 1 < bins.size(); ++i) {
        bins[i + 1] += bins[i] >> 32;
        bins[i] &= 0xffffffff;
    }
}

// Adds `value` times 2^position units: less than 2^34 to each bin, in magnitude.
void add_at(WeightBins bins, int position, std::int64_t value) {
    const auto bin = static_cast<std::size_t>(position) / 32;
    const int shift = position % 32;
    const std::uint64_t low = (static_cast<std::uint64_t>(value) & 0xffffffff) << shift;
    const std::int64_t high = (value >> 32) << shift;
    bins[bin] += static_cast<std::int64_t>(low & 0xffffffff);
    bins[bin + 1] += static_cast<std::int64_t>(low >> 32) + (high & 0xffffffff);
    bins[bin + 2] += high >> 32;
}

// Any values: their squares are first added per biased exponent, without shifts or carries.
// Neighbours go to different tables, since values share few exponents and a sum waits for the one
// before it.
class SquaresByExponent {
  public:
    explicit SquaresByExponent(WeightBins bins) : bins_(bins) {}

    void add(std::span<const float> values, NonFinite& bad) {
        if (held_ + values.size() > kMostValues) flush();
        held_ += values.size();
        for (std::size_t i = 0; i < values.size(); ++i) add(values[i], tables_[i % kTables], bad);
    }

    void flush() {
        if (held_ == 0) return;
        for (std::size_t exponent = 0; exponent < kNonFinite; ++exponent) {
            // Exponents 0 (subnormal) and 1 have the same weight; each further one weighs 2^2 more.
            const int position = 2 * (exponent == 0 ? 0 : static_cast<int>(exponent) - 1);
            for (auto& table : tables_) {
                add_at(bins_, position, static_cast<std::int64_t>(table[exponent]));
            }
        }
        propagate_carries(bins_);
        tables_ = {};
        held_ = 0;
    }

  private:
    static constexpr std::size_t kTables = 4;
    // A square is below 2^48, so 2^15 of them fit into the 63 bits that a bin takes.
    static constexpr std::size_t kMostValues = std::size_t{1} << 15;
    using Table = std::array<std::uint64_t, kExponents>;

    static void add(float value, Table& table, NonFinite& bad) {
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

    WeightBins bins_;
    std::array<Table, kTables> tables_{};
    std::size_t held_ = 0;
};

// Most blocks of gradients span few exponents, and there vectors of doubles add the squares, still
// exactly. A square d of a float is a double without rounding. Adding and subtracting an anchor,
// 1.5 * 2^(u + 52), leaves its multiple of 2^u; what is left is cut once more at a lower u. A lane
// adds kBlock / 8 such multiples, each at most 2^45 times its unit: less than 2^53, so no addition
// rounds. The sum is right if nothing is left below the second unit, else the block is added by
// exponents.
constexpr std::size_t kBlock = 1024;
constexpr std::size_t kLanes = 8;
constexpr int kCutBits = 45;
static_assert((std::uint64_t{kBlock / kLanes} << kCutBits) < std::uint64_t{1} << 53);

// Vectors of AVX2's width: gcc splits wider ones badly.
constexpr std::size_t kWidth = 4;
constexpr std::size_t kVectors = kLanes / kWidth;
using Floats = float __attribute__((vector_size(kWidth * sizeof(float))));
using Doubles = double __attribute__((vector_size(kWidth * sizeof(double))));
using Truths = std::int64_t __attribute__((vector_size(kWidth * sizeof(double))));

struct Cut {
    int unit;                        // exponent of the lanes' unit
    std::array<double, kLanes> sum;  // by lane
};

// Bits of the largest magnitude: of a NaN, if there is one.
FULLSHARD_SIMD_CLONES
std::int32_t largest_bits(const float* values, std::size_t count) {
    std::int32_t largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
        std::int32_t bits;
        std::memcpy(&bits, values + i, sizeof bits);
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

// False where the sums are not exact. `count` is a multiple of the lanes.
FULLSHARD_SIMD_CLONES
bool add_in_lanes(const float* values, std::size_t count, Cut& high, Cut& low, double high_anchor,
                  double low_anchor) {
    Doubles high_sum[kVectors] = {};
    Doubles low_sum[kVectors] = {};
    Truths left[kVectors] = {};
    for (std::size_t i = 0; i < count; i += kLanes) {
        for (std::size_t k = 0; k < kVectors; ++k) {
            Floats floats;
            std::memcpy(&floats, values + i + k * kWidth, sizeof floats);
            const Doubles value = __builtin_convertvector(floats, Doubles);
            const Doubles square = value * value;
            const Doubles upper = (square + high_anchor) - high_anchor;
            const Doubles rest = square - upper;
            const Doubles lower = (rest + low_anchor) - low_anchor;
            high_sum[k] += upper;
            low_sum[k] += lower;
            left[k] |= rest != lower;
        }
    }
    std::memcpy(high.sum.data(), high_sum, sizeof high_sum);
    std::memcpy(low.sum.data(), low_sum, sizeof low_sum);
    std::int64_t any = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) any |= left[lane / kWidth][lane % kWidth];
    return any == 0;
}

void add_cut(WeightBins bins, const Cut& cut) {
    const double per_unit = std::ldexp(1.0, -cut.unit);
    std::int64_t total = 0;
    for (const double sum : cut.sum) total += static_cast<std::int64_t>(sum * per_unit);
    add_at(bins, cut.unit - kUnitExponent, total);
}

// False, and nothing added, where lanes cannot hold the block's squares. A multiple of the lanes.
bool add_block(WeightBins bins, std::span<const float> block) {
    const std::int32_t largest = largest_bits(block.data(), block.size());
    if (largest == 0) return true;
    const int exponent = largest >> kMantissaBits;
    if (exponent == static_cast<int>(kNonFinite)) return false;
    // All squares are below 2^above.
    const int above = 2 * (std::max(exponent, 1) - 127) + 2;
    Cut high{std::max(above - kCutBits, kUnitExponent), {}};
    Cut low{std::max(high.unit - kCutBits, kUnitExponent), {}};
    if (!add_in_lanes(block.data(), block.size(), high, low, std::ldexp(1.5, high.unit + 52),
                      std::ldexp(1.5, low.unit + 52))) {
        return false;
    }
    add_cut(bins, high);
    add_cut(bins, low);
    return true;
}

}  // namespace

void SquareSum::add(std::span<const float> values) {
    const auto weights = std::span(bins_).first<kWeightBins>();
    NonFinite bad;
    SquaresByExponent others(weights);
    // A block adds less than 2^35 to a bin: none overflows before the carries are moved.
    constexpr std::size_t kBlocksBetweenCarries = 1 << 16;
    std::size_t blocks = 0;
    while (!values.empty()) {
        const std::size_t whole = std::min(kBlock, values.size() / kLanes * kLanes);
        const auto block = values.first(whole > 0 ? whole : values.size());
        if (whole == 0 || !add_block(weights, block)) others.add(block, bad);
        if (++blocks % kBlocksBetweenCarries == 0) propagate_carries(weights);
        values = values.subspan(block.size());
    }
    others.flush();
    propagate_carries(weights);
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
