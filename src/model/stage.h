// Stages: the modules that a schedule runs. They know neither ranks nor sharding.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "base/grad_sink.h"
#include "model/micro_batch.h"
#include "spec/model_spec.h"
#include "spec/simple_transformer.h"

namespace fullshard::model {

/// A parameter as a stage uses it: a view of memory that the caller owns and fills, and the place
/// where its gradient goes.
struct Parameter {
    at::Tensor value;          ///< leaf, requires_grad when trainable; storage is not the stage's
    GradSink* sink = nullptr;  ///< receives the gradient; null when gradients are never taken
    std::int64_t index = 0;    ///< the parameter's index in `sink`
};

/// Stages whose backward writes a parameter's gradient into its sink itself report no gradient for it
/// to autograd; gradients that autograd does return are added to the sink by `store_gradient`.
class Stage {
  public:
    virtual ~Stage() = default;

    /// The first stage ignores `x` and reads `batch.tokens`; later ones map float
    /// [batch, sequence, d_model] to the same shape. Runs under autograd when grad mode is on; draws
    /// dropout masks from ATen's default CPU generator, which the caller seeds.
    virtual at::Tensor forward(const at::Tensor& x, const MicroBatch& batch) = 0;
};

/// The last stage.
class HeadStage : public Stage {
  public:
    /// Sum over valid targets of the cross-entropy, times batch.loss_factor: a float scalar. Works
    /// on chunks of rows: the logits of the whole micro-batch never exist at once.
    virtual at::Tensor loss(const at::Tensor& x, const MicroBatch& batch) = 0;
    /// Float [batch, sequence, vocabulary].
    virtual at::Tensor logits(const at::Tensor& x) = 0;
};

/// Builds stage `index` of `spec::describe(model)` on `parameters`, which are in the order of the
/// stage's spec and are kept as views. The last stage is a HeadStage.
std::unique_ptr<Stage> make_stage(const spec::SimpleTransformer& model, std::size_t index,
                                  std::vector<Parameter> parameters);

/// Copies or adds a gradient that autograd returned into the parameter's sink.
void store_gradient(const Parameter& parameter, const at::Tensor& gradient);

}  // namespace fullshard::model
