// Which of a checkpoint's tensors go to another file, and as what.
#pragma once

#include "base/span.h"
#include "checkpoint/format/manifest.h"

#include <string>
#include <vector>

namespace fullshard::checkpoint {

struct Selection {
    bool with_optimizer = false;  ///< moments too
    /// Shell patterns of parameter names: with `include`, only those that one of them fits; never
    /// those that one of `exclude` fits.
    std::vector<std::string> include = {};
    std::vector<std::string> exclude = {};
};

/// In the order of the manifest. Throws UsageError for a pattern that fits no parameter or when
/// nothing is left, DataError when the checkpoint holds no weights.
std::vector<const TensorEntry*> select_tensors(const Manifest& manifest,
                                               const Selection& selection);

/// A tensor of the checkpoint as it will be elsewhere.
struct ExportTensor {
    const TensorEntry* source = nullptr;
    DType dtype = DType::kFloat32;
    std::string name = {};
    /// That of the source, or its two extents exchanged where it is transposed, or fewer rows: what
    /// follows in the source is left out.
    std::vector<std::int64_t> shape = {};
    bool transposed = false;

    std::int64_t numel() const;
    std::int64_t bytes() const { return numel() * size_of(dtype); }
};

/// Under its own name and in its own shape.
ExportTensor unchanged(const TensorEntry& tensor, DType dtype);

}  // namespace fullshard::checkpoint
