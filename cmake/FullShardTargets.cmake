# fullshard_module(NAME SOURCES a.cpp ... DEPENDS modules or targets ... [PRIVATE_DEPENDS ...])
# One static library per folder of src/. DEPENDS repeats the include rule that tests/rules checks.
function(fullshard_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(fullshard_${name} STATIC ${ARG_SOURCES})
  add_library(fullshard::${name} ALIAS fullshard_${name})
  target_include_directories(fullshard_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(fullshard_${name} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE_DEPENDS})
endfunction()

# fullshard_cache_precompiled_header(TARGET): ccache stores nothing that makes or uses a precompiled
# header unless it may leave checking of macros to gcc and gcc's preprocessor notes the header's use.
# Rebuilding the header from the cache takes 2 s instead of 40 s.
function(fullshard_cache_precompiled_header target)
  if(CCACHE_PROGRAM AND CMAKE_CXX_COMPILER_LAUNCHER STREQUAL CCACHE_PROGRAM)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;${CCACHE_PROGRAM}")
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
endfunction()

# fullshard_use_torch(TARGET PUBLIC|PRIVATE): links LibTorch and shares the one precompiled header. PUBLIC
# only where the target's headers name tensors: LibTorch's include folder brings its own copies of
# other libraries (fmt among them), which must not hide ours elsewhere.
function(fullshard_use_torch target visibility)
  target_link_libraries(${target} ${visibility} LibTorch::LibTorch)
  target_precompile_headers(${target} REUSE_FROM fullshard_torch_pch)
  fullshard_cache_precompiled_header(${target})
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)
    # CMake compiles executables with -fPIE, and then gcc ignores a header precompiled with -fPIC.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
endfunction()

# What a test program adds to the modules that it tests runs for seconds at most: it is compiled with what
# costs the least time in all.
if(FULLSHARD_SANITIZE)
  set(FULLSHARD_TEST_OPTIMISATION -O0)
else()
  set(FULLSHARD_TEST_OPTIMISATION -O1)
endif()

# fullshard_test(NAME SOURCES ... DEPENDS ... [LABELS ...] [TIMEOUT s])          GoogleTest, one process
# fullshard_test(NAME SOURCES ... DEPENDS ... RANKS 1 2 3 4 [...])               the same binary under mpirun,
#   one CTest entry a rank count; its main (tests/support/mpi_main.cpp) fails on a wrong rank count.
function(fullshard_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;RANKS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_options(${name} PRIVATE ${FULLSHARD_TEST_OPTIMISATION})
  if(NOT ARG_RANKS)
    target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gtest GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "unit;${ARG_LABELS}")
    return()
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} fullshard_mpi_test_main GTest::gtest)
  foreach(ranks IN LISTS ARG_RANKS)
    set(entry ${name}.${ranks}ranks)
    add_test(NAME ${entry} COMMAND ${FULLSHARD_MPIRUN} -n ${ranks} $<TARGET_FILE:${name}> --expect-ranks=${ranks})
    set_tests_properties(${entry} PROPERTIES TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ranks} LABELS "mpi;${ARG_LABELS}"
                         ENVIRONMENT "${FULLSHARD_MPI_ENVIRONMENT}")
  endforeach()
endfunction()

# How tests start ranks: more ranks than cores are allowed, waits yield, root is allowed.
set(FULLSHARD_MPIRUN mpirun --oversubscribe --bind-to none CACHE STRING "Launcher of MPI tests")
set(FULLSHARD_MPI_ENVIRONMENT
    "OMPI_ALLOW_RUN_AS_ROOT=1" "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1" "OMPI_MCA_mpi_yield_when_idle=1"
    "OMPI_MCA_btl_vader_single_copy_mechanism=none" "OMP_NUM_THREADS=1")
if(FULLSHARD_SANITIZE)
  # Open MPI leaks some 120 KB from plugins that it unloads in MPI_Finalize, so nothing names them in a
  # suppression. Tests without MPI look for leaks.
  # Freed memory that is held back for long would look like memory that piles up.
  list(APPEND FULLSHARD_MPI_ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=4")
endif()
