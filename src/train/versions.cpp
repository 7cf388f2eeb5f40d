#include "train/versions.h"

#include "base/build_info.h"
#include "checkpoint/parallel/hdf5_version.h"
#include "comm/mpi_version.h"
#include "train/engine.h"

#include <fmt/format.h>

namespace fullshard::train {

std::vector<Component> components() {
    const BuildInfo& build = build_info();
    const comm::MpiVersion mpi = comm::mpi_version();
    const checkpoint::Hdf5Version hdf5 = checkpoint::hdf5_version();
    return {
        {"FullShard", std::string(build.version)},
        {"commit", std::string(build.git_hash)},
        {"build", std::string(build.build_type)},
        {"compiler", fmt::format("{}, {}", build.compiler, build.standard)},
        {"flags", std::string(build.flags)},
        {"MPI", fmt::format("{}; compiled for {}", mpi.loaded, mpi.compiled)},
        {"HDF5", fmt::format("{}, parallel; compiled for {}", hdf5.loaded, hdf5.compiled)},
        {"LibTorch", fmt::format("{}, computes with {}", torch_version(), cpu_capability())},
        {"CUDA", "none"},
        {"NCCL", "none"},
    };
}

std::string versions_text() {
    std::string text;
    for (const Component& component : components()) {
        // The first line is the program's name and version, as in every other program's answer.
        text += text.empty() ? fmt::format("{} {}\n", component.name, component.text)
                             : fmt::format("{:<10}{}\n", component.name, component.text);
    }
    return text;
}

std::string libraries_text() {
    const std::string mpi = comm::mpi_version().loaded;
    return fmt::format("{} {}, {}, HDF5 {} parallel, LibTorch {}, no CUDA", build_info().compiler,
                       build_info().standard, mpi.substr(0, mpi.find(',')),
                       checkpoint::hdf5_version().loaded, torch_version());
}

std::vector<std::string> version_warnings() {
    std::vector<std::string> warnings;
    if (const comm::MpiVersion mpi = comm::mpi_version(); !mpi.equal) {
        warnings.push_back(fmt::format(
            "compiled for {}, but the MPI library loaded is {}: load the module that the program "
            "was built with, or build it again",
            mpi.compiled, mpi.loaded));
    }
    if (const auto hdf5 = checkpoint::hdf5_version(); hdf5.compiled != hdf5.loaded) {
        warnings.push_back(fmt::format(
            "compiled for HDF5 {}, but {} is loaded: load the module that the program was built "
            "with, or build it again",
            hdf5.compiled, hdf5.loaded));
    }
    return warnings;
}

}  // namespace fullshard::train
