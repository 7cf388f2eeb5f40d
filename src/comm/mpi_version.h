// Which MPI a program runs with, and which one it was compiled for.
#pragma once

#include <string>

namespace fullshard::comm {

/// Known without MPI_Init.
struct MpiVersion {
    std::string loaded;    ///< what the library says of itself, in one line
    std::string compiled;  ///< of the header, for example "Open MPI 4.1.4, MPI 3.1"
    bool equal = true;     ///< the two are the same release, as far as the header tells
};
MpiVersion mpi_version();

}  // namespace fullshard::comm
