// Llama as a model to train; free of LibTorch.
#pragma once

#include "model/model.h"
#include "spec/llama.h"

#include <memory>

namespace fullshard::model {

/// Throws UsageError for values that spec::describe() refuses.
std::shared_ptr<const Model> make_llama(const spec::Llama& model);

}  // namespace fullshard::model
