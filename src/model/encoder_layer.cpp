#include "model/autograd_context.h"
#include "model/linear.h"
#include "model/transformer_stages.h"

#include <ATen/ops/native_dropout.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <tuple>

namespace fullshard::model {

namespace {

constexpr double kLayerNormEpsilon = 1e-5;

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LayerNorm {
    Parameter weight;  ///< [d_model]
    Parameter bias;    ///< [d_model]

    at::Tensor forward(const at::Tensor& x) const;
};

/// The library's layer norm, but in fp32 between a 16-bit input and its 16-bit output: the library
/// would keep the statistics, and sum the parameters' gradients over the rows, in the input's type.
class LayerNormFunction : public torch::autograd::Function<LayerNormFunction> {
  public:
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                              const at::Tensor& weight, const at::Tensor& bias,
                              const LayerNorm* layer) {
        const auto [out, mean, inverse_deviation] = at::native_layer_norm(
            x, weight.sizes(), weight.to(at::kFloat), bias.to(at::kFloat), kLayerNormEpsilon);
        context->save_for_backward({x, weight, bias, mean, inverse_deviation});
        save_layer(*context, *layer);
        return out;
    }

    static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
        const auto saved = context->get_saved_variables();
        const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
        const std::array<bool, 3> wanted{context->needs_input_grad(0), context->needs_input_grad(1),
                                         context->needs_input_grad(2)};
        const auto [grad_x, grad_weight, grad_bias] = at::native_layer_norm_backward(
            grad_outputs[0].to(at::kFloat), x.to(at::kFloat), weight.sizes(), saved[3], saved[4],
            weight.to(at::kFloat), bias.to(at::kFloat), wanted);
        const auto& layer = saved_layer<LayerNorm>(*context);
        if (wanted[1]) store_gradient(layer.weight, grad_weight);
        if (wanted[2]) store_gradient(layer.bias, grad_bias);
        return {wanted[0] ? grad_x.to(x.scalar_type()) : at::Tensor(), {}, {}, {}};
    }
};

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
    return LayerNormFunction::apply(x, weight.value, bias.value, this);
}

/// x + dropout(branch). The sum takes the memory of `branch` or of its dropped copy: no node of the
/// graph has saved either.
at::Tensor add_residual(const at::Tensor& x, at::Tensor branch, double dropout) {
    if (dropout > 0) branch = std::get<0>(at::native_dropout(branch, dropout, /*train=*/true));
    return branch.add_(x);
}

/// nn.TransformerEncoderLayer(batch_first=True).
class EncoderLayer final : public Stage {
  public:
    EncoderLayer(const spec::SimpleTransformer& model, ParameterList& parameters)
        : Stage(parameters.all()),
          model_(model),
          in_proj_(take_linear(parameters, 3 * model.d_model, model.d_model)),
          out_proj_(take_linear(parameters, model.d_model, model.d_model)),
          feed_forward_(take_feed_forward(parameters, model)),
          norm1_(take_norm(parameters, model.d_model)),
          norm2_(take_norm(parameters, model.d_model)) {}

    at::Tensor forward(const at::Tensor& x, const MicroBatch& batch) override {
        const std::int64_t sequence = x.size(1);
        const double dropout = batch.training ? model_.dropout : 0.0;
        // Rows of one matrix throughout: in-place sums on views would make autograd copy slices.
        const at::Tensor rows = x.reshape({-1, model_.d_model});
        at::Tensor y;
        if (model_.norm_first) {
            y = add_residual(rows, attend(norm1_.forward(rows), sequence, dropout), dropout);
            y = add_residual(y, feed_forward_.forward(norm2_.forward(y), dropout), dropout);
        } else {
            y = norm1_.forward(add_residual(rows, attend(rows, sequence, dropout), dropout));
            y = norm2_.forward(add_residual(y, feed_forward_.forward(y, dropout), dropout));
        }
        return y.view(x.sizes());
    }

  private:
    // Braces evaluate from left to right: weight before bias, as in the spec.
    static Linear take_linear(ParameterList& parameters, std::int64_t out, std::int64_t in) {
        return {parameters.take({out, in}), parameters.take({out})};
    }
    static LayerNorm take_norm(ParameterList& parameters, std::int64_t size) {
        return {parameters.take({size}), parameters.take({size})};
    }
    static FeedForward take_feed_forward(ParameterList& parameters,
                                         const spec::SimpleTransformer& model) {
        return {take_linear(parameters, model.d_ff, model.d_model),
                take_linear(parameters, model.d_model, model.d_ff), model.activation};
    }

    /// Multi-head self-attention of [rows, d_model].
    at::Tensor attend(const at::Tensor& x, std::int64_t sequence, double dropout) const {
        const std::int64_t head_size = model_.d_model / model_.num_heads;
        // One unbind, not three slices: its backward pass writes the three gradients side by side.
        const auto projected = operand(in_proj_.forward(x))
                                   .view({-1, sequence, 3, model_.num_heads, head_size})
                                   .unbind(2);
        const at::Tensor attended = at::scaled_dot_product_attention(
            projected[0].transpose(1, 2), projected[1].transpose(1, 2),
            projected[2].transpose(1, 2),
            /*attn_mask=*/{}, dropout, model_.causal);
        return out_proj_.forward(
            attended.transpose(1, 2).reshape({-1, model_.d_model}).to(x.scalar_type()));
    }

    spec::SimpleTransformer model_;
    Linear in_proj_;
    Linear out_proj_;
    FeedForward feed_forward_;
    LayerNorm norm1_;
    LayerNorm norm2_;
};

}  // namespace

std::unique_ptr<Stage> make_encoder_layer(const spec::SimpleTransformer& model,
                                          ParameterList& parameters) {
    return std::make_unique<EncoderLayer>(model, parameters);
}

}  // namespace fullshard::model
