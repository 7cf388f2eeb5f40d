// GPT-2 as a model to train; free of LibTorch.
#pragma once

#include "model/model.h"
#include "spec/gpt2.h"

#include <memory>

namespace fullshard::model {

/// Throws UsageError for values that spec::describe() refuses.
std::shared_ptr<const Model> make_gpt2(const spec::Gpt2& model);

}  // namespace fullshard::model
