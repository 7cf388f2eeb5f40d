// What this binary is: version, commit, compiler. The commit is looked up at build time.
#pragma once

#include <string_view>

namespace fullshard {

struct BuildInfo {
    std::string_view version;
    std::string_view git_hash;  ///< short hash, "-dirty" when the tree had changes, or "unknown"
    std::string_view build_type;
    std::string_view compiler;  ///< name and release
    std::string_view standard;  ///< of the language, for example "C++20"
    std::string_view flags;
};

const BuildInfo& build_info();

}  // namespace fullshard
