// One micro-batch as the model sees it.
#pragma once

#include <ATen/core/Tensor.h>

namespace fullshard::model {

struct MicroBatch {
    at::Tensor tokens;   ///< int64 [batch, sequence]
    at::Tensor targets;  ///< int64 [batch, sequence]; kIgnoredTarget where no prediction counts
    /// The summed loss is multiplied by this: 1 / (valid targets of the whole step), so that micro-
    /// batches with fewer valid targets weigh less and the sum over all of them is the mean.
    double loss_factor = 1.0;
    bool training = true;  ///< dropout is active

    static constexpr std::int64_t kIgnoredTarget = -1;
};

}  // namespace fullshard::model
