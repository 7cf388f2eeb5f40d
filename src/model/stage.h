// Stages: the modules that a schedule runs. They know neither ranks nor sharding.
#pragma once

#include "model/micro_batch.h"
#include "model/parameter.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace fullshard::model {

/// A stage's backward pass writes most gradients into their sinks itself and reports none to
/// autograd for them; gradients that `torch::autograd::grad` does return go to `store_gradient`.
/// Only parameters that require a gradient and are among the inputs of that call have their sinks
/// opened. The graph of a forward pass points to the stage: the stage must outlive it.
///
/// Parameters and activations have the compute type; statistics of norms, softmax, loss and sums
/// over rows or tokens are in fp32 whatever that is. On one thread and with parameters aligned as
/// Parameter asks, results depend, bit for bit, on the arguments, the parameters and the
/// generator's state only (and on the CPU's instructions).
class Stage {
  public:
    explicit Stage(std::vector<Parameter> parameters) : parameters_(std::move(parameters)) {}
    virtual ~Stage() = default;
    Stage(const Stage&) = delete;
    Stage& operator=(const Stage&) = delete;

    /// The leaves of the stage's graphs, on the memory of the parameters that it was built on and
    /// in their order: what autograd is asked to differentiate with respect to.
    const std::vector<Parameter>& parameters() const { return parameters_; }

    /// Casts floating-point buffers; a stage without any ignores it.
    virtual void set_buffer_type(at::ScalarType /*type*/) {}

    /// The first stage ignores `x` and reads `batch.tokens`; later ones map [batch, sequence,
    /// d_model] to the same shape, the last one to logits. Runs under autograd when grad mode is
    /// on; draws dropout masks from the default generator of the batch's device, which the caller
    /// seeds.
    virtual at::Tensor forward(const at::Tensor& x, const MicroBatch& batch) = 0;

  private:
    std::vector<Parameter> parameters_;
};

/// The last stage.
class HeadStage : public Stage {
  public:
    using Stage::Stage;

    /// Sum over valid targets of the cross-entropy, times batch.loss_factor: an fp32 scalar; zero
    /// where no target is valid. Logits are taken to fp32 first. Under grad mode parameters' sinks
    /// must be open to writing already, since a head may compute gradients while it has the logits;
    /// backward starts with batch.loss_scale as the gradient of the loss.
    virtual at::Tensor loss(const at::Tensor& x, const MicroBatch& batch) = 0;
    /// [batch, sequence, vocabulary] in the compute type.
    virtual at::Tensor logits(const at::Tensor& x, const MicroBatch& batch) = 0;
    /// [count, vocabulary] of some tokens only: `rows`, int64 [count], are their numbers in the
    /// micro-batch, row after row.
    virtual at::Tensor logits_at(const at::Tensor& x, const MicroBatch& batch,
                                 const at::Tensor& rows);

    at::Tensor forward(const at::Tensor& x, const MicroBatch& batch) final {
        return logits(x, batch);
    }
};

/// Seeds the default generator of a device, from which stages draw.
void seed_generator(std::uint64_t seed, at::Device device = at::kCPU);

}  // namespace fullshard::model
