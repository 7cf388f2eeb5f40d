// How fast a rank can compute at best: what the utilisation of a run is measured against.
#pragma once

#include "base/span.h"
#include "kernels/gemm.h"

namespace fullshard::train {

/// FLOP/s of large matrix products of `dtype` in this process, fp32 ones by `gemm`, with the
/// compute threads it has by now; types that the CPU does not multiply count as fp32, which their
/// products are computed in. The best of some short intervals, half a second in all at most. Call
/// it on all ranks of a node at the same time: they share memory, caches and clock rate in training
/// too.
double measure_flops_per_s(DType dtype, const kernels::Gemm& gemm);

}  // namespace fullshard::train
