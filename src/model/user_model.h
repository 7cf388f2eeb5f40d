// A model of modules that users wrote: what torch::nn and TorchScript modules have in common.
#pragma once

#include "model/model.h"
#include "model/tie.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fullshard::model {

/// A tensor that a module holds: the handle shares its identity with the module's own.
struct ModuleTensor {
    std::string name;  ///< within the module
    at::Tensor tensor;
};

/// A module, however it is written. One that shares parameters with itself lists them repeatedly.
struct UserModule {
    std::vector<ModuleTensor> parameters;
    std::vector<ModuleTensor> buffers;
    std::function<at::Tensor(const at::Tensor&)> forward;
    std::function<void(bool training)> set_training;
};

struct UserStage {
    std::string name;
    std::string prefix;  ///< before the names of its parameters, for example "head."
    bool block = false;
    std::function<UserModule()> build;  ///< draws initial values from ATen's default CPU generator
};

/// Builds each stage's module once, one at a time, to describe it; then whenever the stage or its
/// initial values are asked for. Throws UsageError for names that are not unique, a parameter that
/// is not a floating-point number, and a tie that fits no pair of parameters.
std::shared_ptr<const Model> make_user_model(std::string family, std::vector<UserStage> stages,
                                             const std::vector<Tie>& ties);

}  // namespace fullshard::model
