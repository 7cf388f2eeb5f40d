#include "model/attention.h"

#include "model/autograd_context.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/custom_function.h>

namespace fullshard::model {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Of the angle by which each pair of each token's heads is turned: fp32 [batch or 1, sequence, 1,
/// head_size / 2].
struct Turn {
    at::Tensor cosine;
    at::Tensor sine;
};

/// Pairs are elements i and i + head_size / 2. In fp32 between input and output of any type.
at::Tensor turn_pairs(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
    const at::Tensor wide = x.to(at::kFloat);
    const std::int64_t pairs = x.size(-1) / 2;
    const auto halves = [&](const at::Tensor& whole) {
        return std::array{whole.narrow(-1, 0, pairs), whole.narrow(-1, pairs, pairs)};
    };
    const auto [first, second] = halves(wide);
    const at::Tensor out = at::empty(wide.sizes(), wide.options());
    auto [turned_first, turned_second] = halves(out);
    at::mul_out(turned_first, first, cosine).addcmul_(second, sine, /*value=*/-1);
    at::mul_out(turned_second, second, cosine).addcmul_(first, sine);
    return out.to(x.scalar_type());
}

class RotaryFunction : public torch::autograd::Function<RotaryFunction> {
  public:
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                              const at::Tensor& cosine, const at::Tensor& sine) {
        context->save_for_backward({cosine, sine});
        return turn_pairs(x, cosine, sine);
    }

    static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
        const auto saved = context->get_saved_variables();
        return {turn_pairs(grad_outputs[0], saved[0], saved[1].neg()), {}, {}};
    }
};

/// Made anew for each pass, which costs little next to the products: a table that is kept would
/// have to be filled, cast and saved as all state is.
Turn turn_of(const spec::Rope& rope, std::int64_t head_size, std::int64_t sequence,
             const MicroBatch& batch, at::Device device) {
    const bool given = batch.positions.defined();
    const spec::RopeTable table =
        spec::rope_table(rope, head_size, given ? batch.longest_document : sequence);
    const auto whole = at::TensorOptions(device).dtype(at::kLong);
    const at::Tensor positions = given ? batch.positions : at::arange(sequence, whole).unsqueeze(0);
    const at::Tensor frequencies = at::tensor(at::ArrayRef<float>(table.frequencies));
    const at::Tensor angles = positions.to(at::kFloat).unsqueeze(-1) * frequencies.to(device);
    const at::Tensor of_heads = angles.unsqueeze(2);
    return {of_heads.cos().mul_(table.magnitude), of_heads.sin().mul_(table.magnitude)};
}

/// Query, key and value of a micro-batch, each [batch, sequence, heads, head_size].
std::array<at::Tensor, 3> project(const Attention& layer, const at::Tensor& x,
                                  std::int64_t sequence) {
    if (const auto* whole = std::get_if<Linear>(&layer.in)) {
        // One unbind, not three slices: its backward pass writes the three gradients side by side.
        const auto parts = operand(whole->forward(x))
                               .view({-1, sequence, 3, layer.num_heads, layer.head_size})
                               .unbind(2);
        return {parts[0], parts[1], parts[2]};
    }
    const auto& [query, key, value] = std::get<std::array<Linear, 3>>(layer.in);
    const auto heads = [&](const Linear& linear, std::int64_t count) {
        return operand(linear.forward(x)).view({-1, sequence, count, layer.head_size});
    };
    return {heads(query, layer.num_heads), heads(key, layer.num_kv_heads),
            heads(value, layer.num_kv_heads)};
}

}  // namespace

at::Tensor Attention::forward(const at::Tensor& x, std::int64_t sequence, const MicroBatch& batch,
                              double dropout) const {
    auto [query, key, value] = project(*this, x, sequence);
    if (rope) {
        const Turn turn = turn_of(*rope, head_size, sequence, batch, x.device());
        query = RotaryFunction::apply(query, turn.cosine, turn.sine);
        key = RotaryFunction::apply(key, turn.cosine, turn.sine);
    }
    std::optional<at::Tensor> mask;
    if (batch.attention_mask.defined()) mask = batch.attention_mask;
    const at::Tensor attended = at::scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), mask, dropout,
        /*is_causal=*/causal && !mask, /*scale=*/std::nullopt,
        /*enable_gqa=*/num_kv_heads != num_heads);
    return out.forward(
        attended.transpose(1, 2).reshape({-1, num_heads * head_size}).to(x.scalar_type()));
}

}  // namespace fullshard::model
