// Bandwidths as nccl-tests defines them, and ranks that fall behind.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace fullshard::doctor {

enum class Collective : std::uint8_t { kAllGather, kReduceScatter, kAllReduce, kBroadcast };

std::string_view name_of(Collective collective);

/// What bytes of the whole buffer over time ("algbw") is to be multiplied with to get the bandwidth
/// that each link must have ("busbw"), so that numbers of different group sizes compare: (n-1)/n
/// for gathers and scattered sums, twice that for an all-reduce, 1 for a broadcast.
double bus_factor(Collective collective, int ranks);

/// The index of the longest time, if it is far longer than the median.
std::optional<std::size_t> straggler(std::span<const double> seconds);

}  // namespace fullshard::doctor
