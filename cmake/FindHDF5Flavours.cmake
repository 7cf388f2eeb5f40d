# Imported targets HDF5::serial and HDF5::mpi: two builds of the HDF5 C library side by side.
#
# CMake's FindHDF5 finds one of them a project. The checkpoint tool must not link MPI and the trainer
# writes through MPI-IO, so both are needed. Distributions keep them apart in folders hdf5/serial and
# hdf5/openmpi or hdf5/mpich; elsewhere HDF5_SERIAL_ROOT and HDF5_MPI_ROOT name the installations.
function(_hdf5_flavour flavour root parallel)
  find_path(HDF5_${flavour}_INCLUDE_DIR hdf5.h HINTS ${root} PATH_SUFFIXES ${ARGN} include)
  list(TRANSFORM ARGN REPLACE "^include/" "" OUTPUT_VARIABLE library_folders)
  find_library(HDF5_${flavour}_LIBRARY hdf5 HINTS ${root} PATH_SUFFIXES ${library_folders} lib)
  if(NOT HDF5_${flavour}_INCLUDE_DIR OR NOT HDF5_${flavour}_LIBRARY)
    return()
  endif()
  # Which of the two a folder holds is told by its configuration, not by its name.
  file(STRINGS ${HDF5_${flavour}_INCLUDE_DIR}/H5pubconf.h pubconf REGEX "define H5_(HAVE_PARALLEL|VERSION) ")
  if(pubconf MATCHES "H5_VERSION \"([0-9.]+)")
    set(HDF5_${flavour}_VERSION ${CMAKE_MATCH_1} PARENT_SCOPE)
  endif()
  if(pubconf MATCHES H5_HAVE_PARALLEL)
    set(found_parallel TRUE)
  else()
    set(found_parallel FALSE)
  endif()
  if(parallel STREQUAL found_parallel)
    set(HDF5_${flavour}_FITS TRUE PARENT_SCOPE)
  endif()
endfunction()

_hdf5_flavour(SERIAL "${HDF5_SERIAL_ROOT}" FALSE include/hdf5/serial hdf5/serial)
_hdf5_flavour(MPI "${HDF5_MPI_ROOT}" TRUE include/hdf5/openmpi hdf5/openmpi include/hdf5/mpich hdf5/mpich)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(HDF5Flavours
  REQUIRED_VARS HDF5_SERIAL_LIBRARY HDF5_SERIAL_INCLUDE_DIR HDF5_SERIAL_FITS
                HDF5_MPI_LIBRARY HDF5_MPI_INCLUDE_DIR HDF5_MPI_FITS
  VERSION_VAR HDF5_SERIAL_VERSION
  REASON_FAILURE_MESSAGE "HDF5 is needed twice, without MPI and with it (Debian: libhdf5-dev and \
libhdf5-openmpi-dev), or set HDF5_SERIAL_ROOT and HDF5_MPI_ROOT to the two installations")

if(HDF5Flavours_FOUND AND NOT TARGET HDF5::serial)
  foreach(flavour IN ITEMS SERIAL MPI)
    string(TOLOWER ${flavour} name)
    add_library(HDF5::${name} UNKNOWN IMPORTED)
    set_target_properties(HDF5::${name} PROPERTIES
      IMPORTED_LOCATION ${HDF5_${flavour}_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${HDF5_${flavour}_INCLUDE_DIR})
  endforeach()
  # Parallel HDF5's header includes mpi.h.
  target_link_libraries(HDF5::mpi INTERFACE MPI::MPI_CXX)
endif()
