// Words in which the families describe their parameters, check their sizes and count their work.
#pragma once

#include "spec/model_spec.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace fullshard::spec {

InitRule constant(double value);
/// Uniform in [-bound, bound).
InitRule uniform(double bound);
InitRule normal(double deviation);

/// [rows, columns]; weight decay applies.
ParameterSpec matrix(std::string name, std::int64_t rows, std::int64_t columns, InitRule init);
/// [length], without weight decay: biases and the weights of norms.
ParameterSpec vector(std::string name, std::int64_t length, InitRule init);

/// A table of tokens' vectors, or the matrix of a head: [padded_vocab_size, width], the rows behind
/// vocab_size being padding.
ParameterSpec token_matrix(std::string name, std::int64_t vocab_size,
                           std::int64_t padded_vocab_size, std::int64_t width, InitRule init);
/// `own` as the same parameter as `other` of an earlier stage.
ParameterSpec tied(ParameterSpec own, const ParameterSpec& other);

/// Collects what is wrong with a model's values, so that all of it is reported at once.
class Mistakes {
  public:
    /// A line of its own unless `valid`.
    void require(bool valid, std::string_view mistake);
    /// `key` as in the input deck.
    void require_positive(std::string_view key, std::int64_t value);
    /// Throws UsageError if anything was wrong.
    void raise() const;

  private:
    std::string lines_;
};

void require_padding(Mistakes& mistakes, std::int64_t vocab_size, std::int64_t padded_vocab_size);
/// At least 0 and less than 1.
void require_probability(Mistakes& mistakes, std::string_view key, double value);
void require_deviations(Mistakes& mistakes, double norm_eps, double init_deviation);
/// Says nothing where one of the two is not positive: that is a mistake of its own.
void require_divisor(Mistakes& mistakes, std::string_view key, std::int64_t value,
                     std::string_view whole_key, std::int64_t whole);

/// Floating-point operations of a training step per token, forward and backward (PaLM, appendix B):
/// 6 for each of the weights in matrix products, and 12 * attention_width * sequence, where
/// `attention_width` is that of the queries of all layers together.
double training_flops(double product_weights, double attention_width, std::int64_t sequence);

/// The same for layers of four square matrices in attention and two in the feed-forward part.
template <typename Model>
double plain_training_flops(const Model& model, std::int64_t sequence) {
    const auto d = static_cast<double>(model.d_model);
    const auto layers = static_cast<double>(model.num_layers);
    const double layer_weights = 4.0 * d * d + 2.0 * d * static_cast<double>(model.d_ff);
    const double head_weights = d * static_cast<double>(model.vocab_size);
    return training_flops(layers * layer_weights + head_weights, layers * d, sequence);
}

/// A model of the stages `embedding`, block(0) ... block(num_layers - 1), `head`.
template <typename Block>
ModelSpec stack(std::string family, StageSpec embedding, std::int64_t num_layers, Block block,
                StageSpec head) {
    ModelSpec spec{std::move(family), {std::move(embedding)}};
    for (std::int64_t i = 0; i < num_layers; ++i) spec.stages.push_back(block(i));
    spec.stages.push_back(std::move(head));
    return spec;
}

}  // namespace fullshard::spec
