#include "model/module_model.h"

#include "model/user_model.h"

#include <torch/nn/module.h>

#include <utility>

namespace fullshard::model {

namespace {

std::vector<ModuleTensor> listed(const torch::OrderedDict<std::string, at::Tensor>& tensors) {
    std::vector<ModuleTensor> result;
    for (const auto& item : tensors) result.push_back({item.key(), item.value()});
    return result;
}

UserModule adapt(BuiltModule built) {
    return {listed(built.module->named_parameters()), listed(built.module->named_buffers()),
            std::move(built.forward),
            [module = built.module](bool training) { module->train(training); }};
}

}  // namespace

std::shared_ptr<const Model> make_module_model(std::vector<ModuleStage> stages,
                                               const std::vector<Tie>& ties) {
    std::vector<UserStage> adapted;
    for (ModuleStage& stage : stages) {
        adapted.push_back({stage.name, stage.name + ".", stage.block,
                           [make = std::move(stage.make)] { return adapt(make()); }});
    }
    return make_user_model("custom", std::move(adapted), ties);
}

}  // namespace fullshard::model
