# Imported targets LibTorch::LibTorch (CPU part) and, where it is there, LibTorch::CUDA, from FULLSHARD_LIBTORCH, the environment variable of
# that name, or Torch_DIR.
#
# The wheel's own TorchConfig.cmake insists on a CUDA toolkit even for CPU use, hence a target of our
# own. libtorch_cpu needs libcudart and libcupti, which lie in the neighbouring nvidia/ folder of an
# unpacked wheel or in the CUDA toolkit.
set(FULLSHARD_LIBTORCH "$ENV{FULLSHARD_LIBTORCH}" CACHE PATH "Folder with LibTorch's include and lib")
if(NOT FULLSHARD_LIBTORCH AND (Torch_DIR OR DEFINED ENV{Torch_DIR}))
  set(_torch_dir ${Torch_DIR})
  if(NOT _torch_dir)
    set(_torch_dir $ENV{Torch_DIR})
  endif()
  get_filename_component(_torch_root ${_torch_dir}/../../.. ABSOLUTE)
  set(FULLSHARD_LIBTORCH ${_torch_root} CACHE PATH "Folder with LibTorch's include and lib" FORCE)
endif()

find_path(LibTorch_INCLUDE_DIR ATen/ATen.h HINTS ${FULLSHARD_LIBTORCH}/include NO_DEFAULT_PATH)
find_library(LibTorch_CPU_LIBRARY torch_cpu HINTS ${FULLSHARD_LIBTORCH}/lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 HINTS ${FULLSHARD_LIBTORCH}/lib NO_DEFAULT_PATH)

if(LibTorch_INCLUDE_DIR)
  file(STRINGS ${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h _version_lines
       REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
  string(REGEX REPLACE "[^0-9;]" "" _version_numbers "${_version_lines}")
  list(JOIN _version_numbers "." LibTorch_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "set FULLSHARD_LIBTORCH to an unpacked LibTorch, or run tools/quickstart or tools/test, which fetch one")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  get_filename_component(_lib_dir ${LibTorch_CPU_LIBRARY} DIRECTORY)
  get_filename_component(_site ${_lib_dir}/../.. ABSOLUTE)
  set(_runtime_dirs ${_lib_dir} ${_site}/nvidia/cu13/lib)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
    ${LibTorch_INCLUDE_DIR} ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include)
  target_link_libraries(LibTorch::LibTorch INTERFACE
    ${LibTorch_CPU_LIBRARY} ${LibTorch_C10_LIBRARY})
  foreach(_dir IN LISTS _runtime_dirs)
    target_link_options(LibTorch::LibTorch INTERFACE
      "LINKER:-rpath,${_dir}" "LINKER:-rpath-link,${_dir}")
  endforeach()

  find_library(LibTorch_CUDA_LIBRARY torch_cuda HINTS ${_lib_dir} NO_DEFAULT_PATH)
  find_library(LibTorch_C10_CUDA_LIBRARY c10_cuda HINTS ${_lib_dir} NO_DEFAULT_PATH)
  if(LibTorch_CUDA_LIBRARY AND LibTorch_C10_CUDA_LIBRARY)
    add_library(LibTorch::CUDA INTERFACE IMPORTED)
    # Kept although no symbol may be used: their initialisers register the kernels.
    target_link_options(LibTorch::CUDA INTERFACE LINKER:--no-as-needed)
    target_link_libraries(LibTorch::CUDA INTERFACE
      ${LibTorch_CUDA_LIBRARY} ${LibTorch_C10_CUDA_LIBRARY} LibTorch::LibTorch)
  endif()
endif()
