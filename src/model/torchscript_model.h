// Training a model that was saved as TorchScript; free of LibTorch's headers.
#pragma once

#include "model/model.h"

#include <memory>
#include <string>
#include <vector>

namespace fullshard::model {

/// One stage a file, run one after another; those between the first and the last are the blocks. A
/// file's forward() maps one tensor to one, as ModuleStage of module_model.h says; its parameters
/// start with the file's values. Parameters of a single file keep its names, those of several are
/// called "stem of the file." and that. Throws UsageError that names the file for one that cannot
/// be read or has no parameters (a frozen one), or whose forward() takes something else.
std::shared_ptr<const Model> load_torchscript_model(const std::vector<std::string>& paths);

}  // namespace fullshard::model
