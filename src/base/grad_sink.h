// Where backward puts gradients: the seam between models, which compute them, and stores, which
// own the memory that is reduced.
#pragma once

#include "base/span.h"

#include <cstdint>

namespace fullshard {

/// Receives the gradients of one unit's parameters for the current micro-batch. Gradients are
/// computed straight into the memory that will be reduced; nothing is copied for communication.
class GradSink {
  public:
    virtual ~GradSink() = default;

    /// Memory for the gradient of parameter `index` of the unit (row-major, in the parameter's
    /// shape) and whether it already holds a contribution of this micro-batch.
    struct Target {
        TypedSpan memory;
        bool accumulate = false;  ///< false: overwrite, the content is undefined; true: add to it
    };

    /// Marks the parameter as written and returns its target. The caller must fill or add to the
    /// whole span before the unit's reduction starts.
    virtual Target open(std::int64_t index) = 0;
};

}  // namespace fullshard
