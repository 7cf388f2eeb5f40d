#include "device/device_module.h"

#include "base/error.h"
#include "device/module_build.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

namespace fullshard::device {

std::filesystem::path DeviceModule::installed_file() {
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
    return program.parent_path().parent_path() / "lib" / "fullshard" / "libfullshard_cuda.so";
}

DeviceModule::DeviceModule(const std::filesystem::path& file) {
    if (!std::filesystem::exists(file))
        throw UsageError(fmt::format(
            "there is no device module {}: this FullShard was built without CUDA. Build it where a "
            "CUDA toolkit is found (cmake -D FULLSHARD_WITH_CUDA=ON says what is missing), or run "
            "on the CPU",
            file.string()));
    // NOW: a symbol that is missing is found here and not within a step. LOCAL: nobody else shall
    // bind to these symbols; the kernels of libtorch_cuda are found all the same, since its
    // initialisers enter them in the dispatcher of the libtorch_cpu that is loaded already.
    // NODELETE: CUDA and LibTorch leave threads and exit handlers behind.
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle_ == nullptr)
        throw RunError(fmt::format(
            "the device module {} could not be loaded: {}. Libraries of CUDA 13, cuDNN and NCCL "
            "come with the CUDA toolkit or a module of the cluster (LD_LIBRARY_PATH may name their "
            "folder); libnvshmem_host, libcusparseLt and libcufile are fetched by tools/setup",
            file.string(), dlerror()));
    const std::string build = module_build();
    const std::string its_build = static_cast<const char*>(call("fullshard_cuda_build"));
    if (its_build != build)
        throw RunError(fmt::format(
            "the device module {} is of another build ({}) than the program ({}): build and "
            "install both together",
            file.string(), its_build, build));
}

void* DeviceModule::call(const char* function) const {
    using Entry = void*();
    auto* const entry = reinterpret_cast<Entry*>(dlsym(handle_, function));
    if (entry == nullptr)
        throw LogicError(fmt::format("the device module has no function {}", function));
    return entry();
}

}  // namespace fullshard::device
