// The SimpleTransformer as a model to train; free of LibTorch.
#pragma once

#include "model/model.h"
#include "spec/simple_transformer.h"

#include <memory>

namespace fullshard::model {

/// Throws UsageError for values that spec::describe() refuses.
std::shared_ptr<const Model> make_simple_transformer(const spec::SimpleTransformer& model);

}  // namespace fullshard::model
