#include "kernels/cpu/shared_library.h"

#include <dlfcn.h>

namespace fullshard::kernels {

std::optional<SharedLibrary> SharedLibrary::open(std::string_view file, std::string& reason) {
    const std::string name(file);
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (handle != nullptr) return SharedLibrary(handle);
    reason = dlerror();
    return std::nullopt;
}

void* SharedLibrary::symbol(const char* name) const {
    return dlsym(handle_, name);
}

}  // namespace fullshard::kernels
