#include "device/module_build.h"

#include "base/build_info.h"

#include <fmt/format.h>

namespace fullshard::device {

std::string module_build() {
    const BuildInfo& build = build_info();
    return fmt::format("FullShard {}, commit {}, {}, {}", build.version, build.git_hash,
                       build.build_type, build.compiler);
}

}  // namespace fullshard::device
