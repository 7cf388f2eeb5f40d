// Token files in HDF5, as tools/tokenize.py writes them.
#pragma once

#include "data/token_source.h"

#include <cstdint>
#include <filesystem>
#include <memory>

namespace fullshard::data {

/// Reads a file with a 1-D dataset `tokens` (integers), optionally `documents` (integers: where
/// documents begin, ascending from 0) and `loss_mask` (8-bit integers, one a token: 0 where a token
/// is no target), and optionally an attribute `vocab_size` of `tokens` or of the file. `path` is a
/// file, a folder (its *.h5 and *.hdf5) or a pattern with `*` in the file name; several files are
/// joined in the order of their names; in one without a loss mask everything counts. `tokens` and
/// `loss_mask` must be stored in one piece (HDF5's contiguous layout, h5py's default), for they are
/// mapped; HDF5 itself is used here only, not while reading. Throws DataError naming path and
/// dataset. Not thread-safe: HDF5 is not.
std::shared_ptr<const TokenSource> open_hdf5(const std::filesystem::path& path,
                                             std::int64_t vocab_size);

}  // namespace fullshard::data
