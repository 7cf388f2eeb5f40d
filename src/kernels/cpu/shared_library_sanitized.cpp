// In place of shared_library.cpp in builds with sanitizers, which refuse RTLD_DEEPBIND: it would
// bind a library's calls of malloc past theirs.
#include "kernels/cpu/shared_library.h"

#include <fmt/format.h>

namespace fullshard::kernels {

std::optional<SharedLibrary> SharedLibrary::open(std::string_view file, std::string& reason) {
    reason = fmt::format("{} is not loaded by a build with sanitizers", file);
    return std::nullopt;
}

void* SharedLibrary::symbol(const char* /*name*/) const {
    return nullptr;
}

}  // namespace fullshard::kernels
