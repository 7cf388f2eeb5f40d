// Libraries that are loaded while the program runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fullshard::kernels {

/// A shared library that binds its own symbols before those of the program: LibTorch holds another
/// version of oneDNN, to which Debian's would bind its calls otherwise. It is never unloaded, since
/// threads that it started may still run in it.
class SharedLibrary {
  public:
    /// A file name, which the dynamic loader looks for in its usual places, or a path. On failure
    /// nothing, and `reason` says why.
    static std::optional<SharedLibrary> open(std::string_view file, std::string& reason);

    /// Null where the library has no such function.
    template <typename Function>
    Function* function(const char* name) const {
        return reinterpret_cast<Function*>(symbol(name));
    }

  private:
    explicit SharedLibrary(void* handle) : handle_(handle) {}
    void* symbol(const char* name) const;

    void* handle_;
};

}  // namespace fullshard::kernels
