#include "device/cuda/check.h"

#include "base/error.h"

#include <fmt/format.h>

namespace fullshard::device {

void check_cuda(cudaError_t status, std::string_view call, std::string_view process,
                std::source_location where) {
    if (status == cudaSuccess) return;
    cudaGetLastError();  // an error that can be survived must not turn up at a later call
    throw RunError(fmt::format("{}: {} failed: {} ({}, {}:{})", process, call,
                               cudaGetErrorString(status), cudaGetErrorName(status),
                               where.file_name(), where.line()));
}

}  // namespace fullshard::device
