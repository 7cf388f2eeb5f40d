#include "checkpoint/parallel/hdf5_version.h"

#include "base/error.h"

#include <fmt/format.h>
#include <hdf5.h>

namespace fullshard::checkpoint {

Hdf5Version hdf5_version() {
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
    if (H5get_libversion(&major, &minor, &release) < 0)
        throw RunError("the HDF5 library does not tell its version (H5get_libversion)");
    return {fmt::format("{}.{}.{}", H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE),
            fmt::format("{}.{}.{}", major, minor, release)};
}

}  // namespace fullshard::checkpoint
