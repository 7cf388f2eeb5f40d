// What loading one library of matrix products has in common with loading another.
#pragma once

#include "kernels/gemm.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace fullshard::kernels {

/// The library if it computes what it should.
inline GemmOffer tested(std::unique_ptr<const Gemm> gemm) {
    if (std::string fault = find_fault(*gemm); !fault.empty()) return {nullptr, std::move(fault)};
    return {std::move(gemm), {}};
}

/// That of the first file for which load(file) has one, or the reasons for all of them.
template <typename Load>
GemmOffer first_offer(std::span<const std::string_view> files, Load&& load) {
    std::string reasons;
    for (const std::string_view file : files) {
        GemmOffer offer = load(file);
        if (offer.gemm) return offer;
        reasons += (reasons.empty() ? "" : "; ") + offer.reason;
    }
    return {nullptr, std::move(reasons)};
}

}  // namespace fullshard::kernels
