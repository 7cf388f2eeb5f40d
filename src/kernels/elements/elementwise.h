// Bodies of the elementwise kernels, for go_over() of packets.h.
#pragma once

#include "kernels/adamw.h"
#include "kernels/elements/adamw_element.h"
#include "kernels/elements/numbers.h"
#include "kernels/elements/packets.h"
#include "kernels/elements/stochastic_rounding.h"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace fullshard::kernels {

template <typename From, typename To>
struct ConvertBody {
    const From* from;
    To* to;

    template <std::size_t kCount>
    FULLSHARD_HOST_DEVICE void at(std::int64_t i) const {
        const auto in = load<kCount>(from + i);
        Packet<To, kCount> out;
        for (std::size_t k = 0; k < kCount; ++k)
            out.values[k] = from_float<To>(to_float(in.values[k]));
        store(to + i, out);
    }
};

template <typename From>
struct AccumulateBody {
    const From* from;
    float* sum;

    template <std::size_t kCount>
    FULLSHARD_HOST_DEVICE void at(std::int64_t i) const {
        const auto in = load<kCount>(from + i);
        auto out = load<kCount>(sum + i);
        for (std::size_t k = 0; k < kCount; ++k) out.values[k] += to_float(in.values[k]);
        store(sum + i, out);
    }
};

template <typename T>
struct ScaleBody {
    T* values;
    float factor;

    template <std::size_t kCount>
    FULLSHARD_HOST_DEVICE void at(std::int64_t i) const {
        auto packet = load<kCount>(values + i);
        for (T& value : packet.values) value = from_float<T>(to_float(value) * factor);
        store(values + i, packet);
    }
};

struct NoCopy {};

enum class Rounding : std::uint8_t { kNearest, kStochastic };

/// `Copy` is the element type of the copy of the new parameters, or NoCopy.
template <typename Copy, Rounding kRounding>
struct AdamWBody {
    static_assert(kRounding == Rounding::kNearest || std::is_same_v<Copy, BFloat16>);

    float* param;
    const float* gradient;
    float* first_moment;
    float* second_moment;
    AdamWScalars scalars;
    Copy* copy;
    std::uint64_t key;            ///< of the random bits
    std::uint64_t first_element;  ///< position of element 0

    template <std::size_t kCount>
    FULLSHARD_HOST_DEVICE void at(std::int64_t i) const {
        auto p = load<kCount>(param + i);
        const auto g = load<kCount>(gradient + i);
        auto m = load<kCount>(first_moment + i);
        auto v = load<kCount>(second_moment + i);
        for (std::size_t k = 0; k < kCount; ++k) {
            const AdamWElement element =
                updated({p.values[k], m.values[k], v.values[k]}, g.values[k], scalars);
            p.values[k] = element.param;
            m.values[k] = element.first_moment;
            v.values[k] = element.second_moment;
        }
        store(param + i, p);
        store(first_moment + i, m);
        store(second_moment + i, v);
        if constexpr (!std::is_same_v<Copy, NoCopy>) store(copy + i, rounded(p, i));
    }

  private:
    template <std::size_t kCount>
    FULLSHARD_HOST_DEVICE Packet<Copy, kCount> rounded(const Packet<float, kCount>& p,
                                                       std::int64_t i) const {
        Packet<Copy, kCount> out;
        if constexpr (kRounding == Rounding::kStochastic) {
            const auto random =
                rounding_bits<kCount>(key, first_element + static_cast<std::uint64_t>(i));
            for (std::size_t k = 0; k < kCount; ++k)
                out.values[k] = round_stochastic(p.values[k], random[k]);
        } else {
            for (std::size_t k = 0; k < kCount; ++k) out.values[k] = from_float<Copy>(p.values[k]);
        }
        return out;
    }
};

}  // namespace fullshard::kernels
