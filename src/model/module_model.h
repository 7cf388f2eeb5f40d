// Training one's own stack of torch::nn modules; CUSTOM.md shows how. Free of LibTorch's headers.
#pragma once

#include "model/model.h"
#include "model/tie.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace at {
class Tensor;
}
namespace torch::nn {
class Module;
}

namespace fullshard::model {

/// A module as a factory hands it over, and how it is run.
struct BuiltModule {
    std::shared_ptr<torch::nn::Module> module;
    /// The first stage of a model gets the tokens, int64 [batch, sequence], a later one what the
    /// stage before it gave; the last stage gives logits, [batch, sequence, vocabulary].
    std::function<at::Tensor(const at::Tensor&)> forward;
};

/// For a module holder (torch::nn::Linear, one of TORCH_MODULE, ...) or a shared pointer to a
/// module whose forward() maps one tensor to one.
template <typename Holder>
BuiltModule built(Holder holder) {
    BuiltModule result;
    if constexpr (requires { holder.ptr(); }) {
        result.module = holder.ptr();
    } else {
        result.module = holder;
    }
    result.forward = [holder](const at::Tensor& x) mutable { return holder->forward(x); };
    return result;
}

struct ModuleStage {
    std::string name;  ///< parameters are called "name." and what the module calls them
    /// Makes the module with its initial values, drawn from LibTorch's default generator. Called
    /// several times: once to read names and shapes, then on each rank to start and to train it.
    std::function<BuiltModule()> make;
    bool block = false;  ///< one of the repeated blocks, which activation checkpointing counts
};

/// A model that runs the stages one after another and trains all parameters that require a gradient
/// on cross-entropy. Parameters of two dimensions or more decay. Initial values depend on (seed,
/// position of the stage) only. Throws UsageError for stages that cannot be trained.
std::shared_ptr<const Model> make_module_model(std::vector<ModuleStage> stages,
                                               const std::vector<Tie>& ties = {});

}  // namespace fullshard::model
