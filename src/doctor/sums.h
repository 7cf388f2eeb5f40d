// What collectives must give, computed without them.
#pragma once

#include "base/span.h"
#include "comm/communicator.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace fullshard::doctor {

/// Element `index` of what a rank contributes: magnitudes differ so much that another order of
/// summation gives other bits. `dtype` can hold it.
float contribution(int rank, std::int64_t index, DType dtype);

/// The values added along the balanced binary tree: the first 2^k of them, the largest power of two
/// below their number, and the rest. Each sum is rounded to `dtype`, fp32 or bf16.
float tree_sum_of(std::span<const float> values, DType dtype);

/// Runs all collectives on blocks of `count` elements and compares every bit. Returns what is
/// wrong first, in words. Collective over the communicator's ranks.
std::optional<std::string> wrong_result(comm::Communicator& communicator, std::int64_t count,
                                        DType dtype);

}  // namespace fullshard::doctor
