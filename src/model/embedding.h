// The first stage: tokens to vectors.
#pragma once

#include "model/parameter.h"
#include "model/parameter_list.h"
#include "model/stage.h"

#include <memory>
#include <optional>

namespace fullshard::model {

struct EmbeddingTables {
    Parameter token;                    ///< [vocabulary or more, d_model]
    std::optional<Parameter> position;  ///< [max_positions, d_model], added to the tokens'
};

/// The stage's parameters are those of `parameters`. Drops elements of the sum with probability
/// `dropout` in training. The stage throws UsageError for a sequence longer than the positions.
std::unique_ptr<Stage> make_embedding(const ParameterList& parameters, EmbeddingTables tables,
                                      double dropout);

}  // namespace fullshard::model
