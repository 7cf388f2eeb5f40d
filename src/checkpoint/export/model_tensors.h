// A checkpoint's tensors as other programs have them.
#pragma once

#include "checkpoint/exchange/mapping.h"
#include "checkpoint/export/selection.h"
#include "checkpoint/format/llmc_model.h"
#include "checkpoint/format/manifest.h"
#include "spec/architecture.h"

#include <string_view>
#include <vector>

namespace fullshard::checkpoint {

/// The model that the manifest names. Throws UsageError for a checkpoint that names none; `origin`
/// is its folder.
spec::Architecture exported_architecture(const Manifest& manifest, std::string_view origin);

/// All weights under the names and in the layouts of transformers or llm.c, without the rows that
/// pad the vocabulary, in the model's order. Throws DataError listing what is missing, extra or of
/// another shape.
std::vector<ExportTensor> exported_tensors(const Manifest& manifest,
                                           const spec::Architecture& architecture, NamesOf names,
                                           DType dtype);

/// The header of a file of llm.c. Throws UsageError listing what such a file cannot say.
LlmcModel llmc_model_of(const spec::Architecture& architecture, DType dtype);

}  // namespace fullshard::checkpoint
