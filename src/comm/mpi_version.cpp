#include "comm/mpi_version.h"

#include "comm/mpi_detail.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>

namespace fullshard::comm {

namespace {

/// The release in the header, such as "4.1.4"; empty where the header of another MPI names none in
/// a way known here.
std::string header_release() {
#ifdef OMPI_RELEASE_VERSION
    return fmt::format("{}.{}.{}", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION);
#else
    return {};
#endif
}

}  // namespace

MpiVersion mpi_version() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
    int length = 0;
    check_mpi(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
    MpiVersion version;
    version.loaded = text;  // Open MPI counts the final NUL in `length`
    std::ranges::replace(version.loaded, '\n', ' ');
    const std::string release = header_release();
    const std::string name = release.empty() ? "" : fmt::format("Open MPI {}, ", release);
    version.compiled = fmt::format("{}MPI {}.{}", name, MPI_VERSION, MPI_SUBVERSION);
    version.equal = version.loaded.find(release) != std::string::npos;
    return version;
}

}  // namespace fullshard::comm
