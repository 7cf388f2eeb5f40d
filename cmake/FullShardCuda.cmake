# Whether the device module libfullshard_cuda.so is built: FULLSHARD_CUDA is ON or OFF afterwards.
#
# It holds all that needs CUDA, NCCL or LibTorch's CUDA part, and is loaded at run time. Nothing of
# it is linked to the program, so AUTO changes no build on a machine without a toolkit.
set(FULLSHARD_WITH_CUDA AUTO CACHE STRING "Build the device module: ON, OFF, or AUTO (where all it needs is found)")
set_property(CACHE FULLSHARD_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)

# Sets FULLSHARD_CUDA_LACKS to what is missing, or to nothing.
function(_find_cuda_parts)
  set(FULLSHARD_CUDA_LACKS "" PARENT_SCOPE)
  if(NOT TARGET LibTorch::CUDA)
    set(FULLSHARD_CUDA_LACKS "libtorch_cuda and libc10_cuda beside libtorch_cpu (tools/setup fetches them)" PARENT_SCOPE)
    return()
  endif()
  find_package(CUDAToolkit 13.0 QUIET)
  if(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
    set(FULLSHARD_CUDA_LACKS "a CUDA toolkit, 13.0 or newer, with nvcc" PARENT_SCOPE)
    return()
  endif()
  # The CUDA toolkit of a cluster often lies apart from its NCCL.
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ENV NCCL_HOME ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  find_library(NCCL_LIBRARY nccl HINTS ENV NCCL_HOME ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
  if(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
    set(FULLSHARD_CUDA_LACKS "NCCL (nccl.h and libnccl.so; NCCL_HOME may name its folder)" PARENT_SCOPE)
    return()
  endif()
  # libtorch_cuda finds its libraries in its own run path, in the module's, which names the toolkit, or
  # where the dynamic loader looks.
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env "LD_LIBRARY_PATH=$ENV{LD_LIBRARY_PATH}:${CUDAToolkit_LIBRARY_DIR}"
            ldd ${LibTorch_CUDA_LIBRARY}
    OUTPUT_VARIABLE needs COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^ \t\n]+ => not found" lost "${needs}")
  if(lost)
    list(TRANSFORM lost REPLACE " => not found" "")
    list(JOIN lost ", " lost)
    set(FULLSHARD_CUDA_LACKS "what libtorch_cuda is linked to: ${lost} (cuDNN, or run tools/setup)" PARENT_SCOPE)
  endif()
endfunction()

set(FULLSHARD_CUDA OFF)
if(NOT FULLSHARD_WITH_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "FULLSHARD_WITH_CUDA is ${FULLSHARD_WITH_CUDA}; it may be AUTO, ON or OFF")
elseif(FULLSHARD_WITH_CUDA STREQUAL OFF)
  return()
endif()
_find_cuda_parts()
if(FULLSHARD_CUDA_LACKS)
  set(_message "The device module is not built, for want of ${FULLSHARD_CUDA_LACKS}")
  if(FULLSHARD_WITH_CUDA STREQUAL ON)
    message(FATAL_ERROR "${_message}")
  endif()
  message(STATUS "${_message}")
  return()
endif()

find_package(CUDAToolkit 13.0 REQUIRED QUIET)
add_library(NCCL::NCCL UNKNOWN IMPORTED)
set_target_properties(NCCL::NCCL PROPERTIES
  IMPORTED_LOCATION ${NCCL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})

# A100, H100 and H200, B200; later ones compile the newest from its intermediate code.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90 100)
endif()
if(NOT DEFINED CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
endif()
# The one that LibTorch uses: two copies of the runtime would not share a device's state.
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
if(CCACHE_PROGRAM AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
enable_language(CUDA)
# CMake 3.25 does not know that nvcc has C++20, which targets ask for by CMAKE_CXX_STANDARD.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
endif()
set(FULLSHARD_CUDA ON)
message(STATUS "The device module is built with CUDA ${CUDAToolkit_VERSION} and ${NCCL_LIBRARY}")
