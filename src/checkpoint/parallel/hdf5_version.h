// Which HDF5 checkpoints are written with.
#pragma once

#include <string>

namespace fullshard::checkpoint {

/// Releases such as "1.10.8". The library is one with parallel I/O: the writers do not link with
/// another.
struct Hdf5Version {
    std::string compiled;  ///< of the header
    std::string loaded;    ///< of the library
};
/// Needs no MPI_Init.
Hdf5Version hdf5_version();

}  // namespace fullshard::checkpoint
