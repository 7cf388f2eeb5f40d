// A stage on memory of the test's own, run the way a training engine runs it.
#pragma once

#include "base/grad_sink.h"
#include "model/stage.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace fullshard::model {

/// Gradient memory that starts as NaN, so that whatever a stage leaves unwritten shows.
class PoisonedSink final : public GradSink {
  public:
    explicit PoisonedSink(std::span<const std::int64_t> sizes);

    Target open(std::int64_t index) override;

    std::span<float> gradient(std::size_t index) { return gradients_[index]; }
    bool written(std::size_t index) const { return written_[index]; }
    /// As at the start of a micro-batch: everything NaN, nothing written.
    void poison();

  private:
    std::vector<std::vector<float>> gradients_;
    std::vector<bool> written_;
};

/// Shapes of the parameters of stage `index`, as the model's description lists them.
std::vector<std::vector<std::int64_t>> parameter_shapes(const spec::SimpleTransformer& model,
                                                        std::size_t index);

class StageRig {
  public:
    /// Draws the parameters; those whose index is in `frozen` need no gradient.
    StageRig(const spec::SimpleTransformer& model, std::size_t index,
             const std::vector<std::size_t>& frozen = {});

    Stage& stage() { return *stage_; }
    HeadStage& head() { return dynamic_cast<HeadStage&>(*stage_); }
    PoisonedSink& sink() { return *sink_; }
    std::size_t size() const { return memory_.size(); }
    /// The memory under parameter `index`, behind autograd's back.
    std::span<float> memory(std::size_t index) { return memory_[index]; }
    at::Tensor gradient(std::size_t index);
    /// Copies of the parameters as ordinary leaves.
    std::vector<at::Tensor> copies() const;

    /// Differentiates `out` with respect to `x` (if it is defined and requires a gradient) and the
    /// trainable parameters, delivers gradients that autograd returns, and returns that of `x`.
    at::Tensor backward(const at::Tensor& out, const at::Tensor& x, const at::Tensor& grad_out);

  private:
    std::vector<std::vector<float>> memory_;
    std::vector<std::vector<std::int64_t>> shapes_;
    std::unique_ptr<PoisonedSink> sink_;
    std::vector<Parameter> parameters_;
    std::unique_ptr<Stage> stage_;
};

/// Seeds ATen's default CPU generator.
void seed_generator(std::uint64_t seed);

/// Standard normal [batch, sequence, width] from `seed`; leaves the default generator alone.
at::Tensor random_tensor(at::IntArrayRef shape, std::uint64_t seed);
/// Uniform integers in [0, bound) from `seed`.
at::Tensor random_classes(at::IntArrayRef shape, std::int64_t bound, std::uint64_t seed);

/// Equal to `tolerance` times the largest element of `expected`, or times 1 where that is smaller.
void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                  const std::string& what);

}  // namespace fullshard::model
