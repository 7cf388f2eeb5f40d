// What PyTorch computed (tests/golden/README.md), with how near a run of ours has to come.
#pragma once

#include "config/deck.h"
#include "data/loader.h"
#include "model/model.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fullshard::testing {

struct GoldenStep {
    double loss = 0.0;       ///< mean over the step's valid targets, before the update
    double grad_norm = 0.0;  ///< unscaled, before clipping; NaN when the gradient overflowed
    double loss_scale = 1.0;
    bool skipped = false;  ///< no update
};

/// Euclidean norm of a tensor, and the distance that rounding explains.
struct GoldenNorm {
    double value = 0.0;
    double tolerance = 0.0;
};

struct GoldenParameter {
    std::string name;
    bool trainable = true;
    GoldenNorm first_gradient = {};  ///< of the first step not skipped; of trainable ones only
    GoldenNorm after = {};           ///< of the parameter after all steps
    bool comparable_after = true;
};

struct GoldenCase {
    std::uint64_t seed = 0;
    std::shared_ptr<const model::Model> model;
    config::Optimizer optimizer;
    config::Precision precision;
    std::int64_t micro_batch = 0;           ///< sequences; rounding in half width depends on it
    std::vector<data::TokenBatch> batches;  ///< step s trains on number s modulo their count
    std::vector<GoldenStep> steps;
    std::vector<GoldenParameter> parameters;  ///< in the description's order, without tied ones
    double loss_tolerance = 0.0;              ///< relative
    double grad_norm_tolerance = 0.0;         ///< relative
    /// The same training in full width throughout, skipped steps included.
    std::vector<double> full_width_losses;

    bool half_width() const { return precision.param != DType::kFloat32; }
    std::int64_t batch() const { return batches.front().batch; }
    const data::TokenBatch& batch_of(std::int64_t step) const {
        return batches[static_cast<std::size_t>(step) % batches.size()];
    }
};

/// Reads tests/golden/simple_transformer_<name>.json or, for names that begin with "hf/", training
/// of a model of transformers.
GoldenCase read_golden(const std::string& name);

/// Sequences [first, first + count) of a batch.
data::TokenBatch sequences_of(const data::TokenBatch& batch, std::int64_t first,
                              std::int64_t count);

}  // namespace fullshard::testing
