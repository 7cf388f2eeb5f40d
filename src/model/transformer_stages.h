// The three kinds of stages of the SimpleTransformer.
#pragma once

#include "model/stage.h"
#include "spec/simple_transformer.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace fullshard::model {

/// Hands out a stage's parameters in the order of its spec and checks their shapes.
class ParameterList {
  public:
    explicit ParameterList(std::vector<Parameter> parameters)
        : parameters_(std::move(parameters)) {}

    Parameter take(std::initializer_list<std::int64_t> shape);
    const std::vector<Parameter>& all() const { return parameters_; }
    bool empty() const { return next_ == parameters_.size(); }

  private:
    std::vector<Parameter> parameters_;
    std::size_t next_ = 0;
};

std::unique_ptr<Stage> make_embedding(const spec::SimpleTransformer& model,
                                      ParameterList& parameters);
std::unique_ptr<Stage> make_encoder_layer(const spec::SimpleTransformer& model,
                                          ParameterList& parameters);
std::unique_ptr<HeadStage> make_head(const spec::SimpleTransformer& model,
                                     ParameterList& parameters);

/// Rows of logits that the head's loss holds at once: about 4 MiB, which stays in the last-level
/// cache, but at least 64 rows. The logits of a whole micro-batch never exist. Each chunk reads the
/// weight and updates its gradient as a whole; with 64 rows that is 32 and 16 operations a byte,
/// enough not to wait for memory.
std::int64_t loss_chunk_rows(std::int64_t vocab_size);

}  // namespace fullshard::model
