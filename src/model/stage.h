// Stages: the modules that a schedule runs. They know neither ranks nor sharding.
#pragma once

#include "model/micro_batch.h"
#include "model/parameter.h"
#include "spec/simple_transformer.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace fullshard::model {

/// A stage's backward pass writes most gradients into their sinks itself and reports none to
/// autograd for them; gradients that `torch::autograd::grad` does return go to `store_gradient`.
/// Only parameters that require a gradient and are among the inputs of that call have their sinks
/// opened. The graph of a forward pass points to the stage: the stage must outlive it.
///
/// On one thread and with parameters aligned as Parameter asks, results depend, bit for bit, on the
/// arguments, the parameters and the generator's state only.
class Stage {
  public:
    Stage() = default;
    virtual ~Stage() = default;
    Stage(const Stage&) = delete;
    Stage& operator=(const Stage&) = delete;

    /// The first stage ignores `x` and reads `batch.tokens`; later ones map float
    /// [batch, sequence, d_model] to the same shape, the last one to logits. Runs under autograd
    /// when grad mode is on; draws dropout masks from ATen's default CPU generator, which the
    /// caller seeds.
    virtual at::Tensor forward(const at::Tensor& x, const MicroBatch& batch) = 0;
};

/// The last stage.
class HeadStage : public Stage {
  public:
    /// Sum over valid targets of the cross-entropy, times batch.loss_factor: a float scalar; zero
    /// where no target is valid. Works on chunks of rows: the logits of the whole micro-batch never
    /// exist at once.
    virtual at::Tensor loss(const at::Tensor& x, const MicroBatch& batch) = 0;
    /// Float [batch, sequence, vocabulary].
    virtual at::Tensor logits(const at::Tensor& x) = 0;

    at::Tensor forward(const at::Tensor& x, const MicroBatch&) final { return logits(x); }
};

/// Builds stage `index` of `spec::describe(model)` on `parameters`, which are in the order of the
/// stage's spec and are kept as views. The last stage is a HeadStage. Throws LogicError when number
/// or shapes of the parameters are not the stage's.
std::unique_ptr<Stage> make_stage(const spec::SimpleTransformer& model, std::size_t index,
                                  std::vector<Parameter> parameters);

}  // namespace fullshard::model
