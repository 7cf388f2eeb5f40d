// LibTorch's own matrix product as one of the libraries; free of its headers.
#pragma once

#include "kernels/gemm.h"

#include <memory>

namespace fullshard::model {

/// `threads` are those of all that ATen computes on the calling thread.
std::unique_ptr<const kernels::Gemm> make_libtorch_gemm(int threads);

}  // namespace fullshard::model
