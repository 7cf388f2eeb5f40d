#include "doctor/scratch_folder.h"

#include "base/error.h"
#include "comm/agree.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

namespace fullshard::doctor {

namespace fs = std::filesystem;

ScratchFolder::ScratchFolder(const comm::Group& world, const fs::path& run_dir)
    : owner_(world.rank() == 0) {
    comm::agree(world, [&] {
        if (!owner_) return;
        fs::path parent = fs::absolute(run_dir).lexically_normal();
        std::error_code ignored;
        while (!fs::exists(parent, ignored) && parent.has_relative_path())
            parent = parent.parent_path();
        std::string name = (parent / ".fullshard-doctor-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) {
            throw RunError(fmt::format("cannot make a folder in {}: {}", parent.string(),
                                       std::strerror(errno)));
        }
        path_ = name;
    });
    path_ = world.broadcast(path_.string(), 0);
}

ScratchFolder::~ScratchFolder() {
    std::error_code ignored;  // what cannot be removed has a name that tells where it comes from
    if (owner_) fs::remove_all(path_, ignored);
}

}  // namespace fullshard::doctor
