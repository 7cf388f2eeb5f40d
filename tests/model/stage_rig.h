// A stage on memory of the test's own, run the way a training engine runs it.
#pragma once

#include "base/grad_sink.h"
#include "kernels/gemm.h"
#include "model/model.h"
#include "model/simple_transformer.h"
#include "model/stage.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace fullshard::model {

/// The library that stages of the tests multiply by: oneDNN where it is installed, LibTorch's own
/// otherwise and where FULLSHARD_TEST_GEMM = libtorch.
const kernels::Gemm& test_gemm();

/// Gradient memory that starts as NaN, so that whatever a stage leaves unwritten shows.
class PoisonedSink final : public GradSink {
  public:
    PoisonedSink(std::span<const std::int64_t> sizes, DType type);

    Target open(std::int64_t index) override;

    at::Tensor gradient(std::size_t index) { return gradients_[index]; }
    bool written(std::size_t index) const { return written_[index]; }
    /// As at the start of a micro-batch: everything NaN, nothing written.
    void poison();

  private:
    DType type_;
    std::vector<at::Tensor> gradients_;
    std::vector<bool> written_;
};

struct RigOptions {
    std::vector<std::size_t> frozen = {};  ///< indices of parameters that need no gradient
    DType compute = DType::kFloat32;
    DType sink = DType::kFloat32;
};

class StageRig {
  public:
    /// Draws the parameters, equal ones up to rounding whatever the compute type.
    StageRig(std::shared_ptr<const Model> model, std::size_t index, const RigOptions& options = {});
    StageRig(const spec::SimpleTransformer& model, std::size_t index,
             const RigOptions& options = {})
        : StageRig(make_simple_transformer(model), index, options) {}

    Stage& stage() { return *stage_; }
    HeadStage& head() { return dynamic_cast<HeadStage&>(*stage_); }
    PoisonedSink& sink() { return *sink_; }
    std::size_t size() const { return memory_.size(); }
    /// The memory under parameter `index`, behind autograd's back.
    at::Tensor memory(std::size_t index) { return memory_[index]; }
    at::Tensor gradient(std::size_t index);
    /// fp32 copies of the parameters as ordinary leaves.
    std::vector<at::Tensor> copies() const;

    /// Differentiates `out` with respect to `x` (if it is defined and requires a gradient) and the
    /// trainable parameters, delivers gradients that autograd returns, and returns that of `x`.
    at::Tensor backward(const at::Tensor& out, const at::Tensor& x, const at::Tensor& grad_out);

  private:
    std::shared_ptr<const Model> model_;
    std::vector<at::Tensor> memory_;
    std::unique_ptr<PoisonedSink> sink_;
    std::unique_ptr<Stage> stage_;
};

/// Standard normal [batch, sequence, width] from `seed`; leaves the default generator alone.
at::Tensor random_tensor(at::IntArrayRef shape, std::uint64_t seed);
/// Uniform integers in [0, bound) from `seed`.
at::Tensor random_classes(at::IntArrayRef shape, std::int64_t bound, std::uint64_t seed);

/// Equal to `tolerance` times the largest element of `expected`, or times 1 where that is smaller.
void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                  const std::string& what);

}  // namespace fullshard::model
