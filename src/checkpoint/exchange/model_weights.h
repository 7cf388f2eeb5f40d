// Weights of a known model, whatever program wrote the file.
#pragma once

#include "checkpoint/format/weights.h"
#include "spec/architecture.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace fullshard::checkpoint {

/// What open_weights() takes, its tensors under the names and in the shapes of spec::describe():
/// tied parameters once, under the first one's name, and zeros in the rows that pad the vocabulary.
/// Names and layouts may be those of transformers (with or without the prefix "transformer." or
/// "model."), llama.cpp, llm.c, or ours; a read touches what its range needs. Passed over are
/// tensors that a program computes anyhow (causal masks, rotary tables), and a tied head that
/// equals its table. Throws DataError with one list of what is missing, extra, of another shape or
/// unreadable; where `left_out` is given it gets that list instead, and tensors() those that fit.
std::unique_ptr<WeightsSource> open_model_weights(const std::filesystem::path& path,
                                                  const spec::Architecture& architecture,
                                                  std::vector<std::string>* left_out = nullptr);

/// The same correspondence as a table for people: a line for each parameter, layers together, with
/// both names, both shapes and the rearrangement. Throws as open_model_weights() does.
std::string mapping_text(const std::filesystem::path& path, const spec::Architecture& architecture);

}  // namespace fullshard::checkpoint
