// What this program was made of and what it runs with.
#pragma once

#include <string>
#include <vector>

namespace fullshard::train {

/// The answer to --version: a line each for version, commit, build, compiler, flags, MPI, HDF5,
/// LibTorch and what is there of CUDA. Needs no MPI_Init.
std::string versions_text();

/// The same in one line, without version, commit and build.
std::string libraries_text();

/// A sentence for each library that is loaded in another release than the program was compiled for.
std::vector<std::string> version_warnings();

/// What versions_text() lists, by name.
struct Component {
    std::string name;
    std::string text;
};
std::vector<Component> components();

}  // namespace fullshard::train
