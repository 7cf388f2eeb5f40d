// The one way to check CUDA's status codes.
#pragma once

#include <cuda_runtime.h>

#include <source_location>
#include <string_view>

namespace fullshard::device {

/// Throws RunError naming process, call, CUDA's text and the place if `status` is an error.
/// `process` is "rank 3 on node7".
void check_cuda(cudaError_t status, std::string_view call, std::string_view process,
                std::source_location where = std::source_location::current());

}  // namespace fullshard::device
