// What the engine trains: a description and a way to build each stage. Free of LibTorch, so that
// assembling a run compiles without it.
#pragma once

#include "model/computing.h"
#include "spec/model_spec.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fullshard::model {

struct Parameter;
class Stage;

/// Stages are built one at a time, on every rank: no rank ever holds the whole model unsharded.
class Model {
  public:
    virtual ~Model() = default;

    virtual const spec::ModelSpec& spec() const = 0;

    /// Builds stage `index` on `parameters`, which are in the order of the stage's spec, tied ones
    /// included, and are kept as views. The last stage is a HeadStage. The stages of our own models
    /// compute as `computing` says; modules that users bring do by LibTorch alone. Throws
    /// LogicError when number or shapes of the parameters are not the stage's.
    virtual std::unique_ptr<Stage> make_stage(std::size_t index, std::vector<Parameter> parameters,
                                              const Computing& computing) const = 0;
    /// Whether stages use `computing`.
    virtual bool uses_gemm() const { return true; }

    /// Whether a token sees itself and those before only; of models that honour
    /// MicroBatch::attention_mask.
    virtual bool causal() const { return true; }

    /// Initial values, row-major, of the stage's parameters that have the rule InitRule::kModule,
    /// in their order; empty vectors for the others. A function of (seed, index), equal on all
    /// ranks.
    virtual std::vector<std::vector<float>> initial_values(std::size_t index,
                                                           std::uint64_t seed) const;
};

}  // namespace fullshard::model
