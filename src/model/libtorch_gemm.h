// LibTorch's own matrix product as one of the libraries; free of its headers.
#pragma once

#include "kernels/gemm.h"

#include <memory>

namespace fullshard::model {

/// Its threads are those of ATen.
std::unique_ptr<const kernels::Gemm> make_libtorch_gemm();

}  // namespace fullshard::model
