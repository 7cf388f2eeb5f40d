#include "model/torchscript_model.h"

#include "base/error.h"
#include "model/user_model.h"

#include <torch/script.h>

#include <filesystem>
#include <utility>

namespace fullshard::model {

namespace {

torch::jit::Module load(const std::string& path) {
    try {
        return torch::jit::load(path, at::kCPU);
    } catch (const c10::Error& error) {
        throw UsageError("model.path = " + path + ": not readable as TorchScript (" +
                         error.what_without_backtrace() +
                         "): write it with torch.jit.script(module).save(path)");
    }
}

bool takes_one_tensor(const torch::jit::Module& module) {
    const auto forward = module.find_method("forward");
    if (!forward) return false;
    const auto& arguments = forward->function().getSchema().arguments();
    std::size_t required = 0;
    for (const auto& argument : arguments) required += argument.default_value() ? 0 : 1;
    return required == 2;  // self and x
}

void require_trainable(const std::string& path) {
    const torch::jit::Module module = load(path);
    if (module.named_parameters().size() == 0) {
        throw UsageError("model.path = " + path +
                         ": the file has no parameters to train: save it without torch.jit.freeze "
                         "and torch.jit.optimize_for_inference, which turn them into constants");
    }
    if (!takes_one_tensor(module)) {
        throw UsageError("model.path = " + path +
                         ": forward() must take one tensor: wrap the module in one whose "
                         "forward(self, x) does");
    }
}

UserModule adapt(torch::jit::Module module) {
    UserModule result;
    for (const auto& parameter : module.named_parameters()) {
        result.parameters.push_back({parameter.name, parameter.value});
    }
    for (const auto& buffer : module.named_buffers()) {
        result.buffers.push_back({buffer.name, buffer.value});
    }
    result.set_training = [module](bool training) mutable { module.train(training); };
    result.forward = [module = std::move(module)](const at::Tensor& x) mutable {
        // Optimised graphs change after the first runs, and results with them.
        const torch::jit::GraphOptimizerEnabledGuard interpret(false);
        const at::IValue out = module.forward({x});
        return out.isTensor() ? out.toTensor() : at::Tensor();
    };
    return result;
}

}  // namespace

std::shared_ptr<const Model> load_torchscript_model(const std::vector<std::string>& paths) {
    std::vector<UserStage> stages;
    for (const std::string& path : paths) {
        require_trainable(path);
        const std::string stem = std::filesystem::path(path).stem().string();
        const bool middle = !stages.empty() && stages.size() + 1 < paths.size();
        stages.push_back({stem, paths.size() > 1 ? stem + "." : "", middle,
                          [path] { return adapt(load(path)); }});
    }
    return make_user_model("torchscript", std::move(stages), {});
}

}  // namespace fullshard::model
