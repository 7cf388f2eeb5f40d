#include "doctor/file_system.h"

#include "base/error.h"

#include <fmt/format.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace fullshard::doctor {

namespace {

enum class Kind : std::uint8_t { kDisk, kParallel, kNfs, kMemory, kContainer };

struct Known {
    std::uint32_t magic;
    std::string_view name;
    Kind kind;
};

// Numbers of linux/magic.h, statfs(2), and of the file systems' own sources.
constexpr std::array kKnown{
    Known{0x0000ef53, "ext4", Kind::kDisk},         Known{0x58465342, "xfs", Kind::kDisk},
    Known{0x9123683e, "btrfs", Kind::kDisk},        Known{0x2fc12fc1, "zfs", Kind::kDisk},
    Known{0x0bd00bd0, "lustre", Kind::kParallel},   Known{0x47504653, "gpfs", Kind::kParallel},
    Known{0x19830326, "beegfs", Kind::kParallel},   Known{0x00c36400, "ceph", Kind::kParallel},
    Known{0x20030528, "orangefs", Kind::kParallel}, Known{0xaad7aaea, "panfs", Kind::kParallel},
    Known{0x00006969, "nfs", Kind::kNfs},           Known{0xff534d42, "cifs", Kind::kNfs},
    Known{0xfe534d42, "smb", Kind::kNfs},           Known{0x01021994, "tmpfs", Kind::kMemory},
    Known{0x858458f6, "ramfs", Kind::kMemory},      Known{0x794c7630, "overlay", Kind::kContainer},
    Known{0x65735546, "fuse", Kind::kDisk},         Known{0x01021997, "9p", Kind::kDisk},
};

std::string doubt_about(Kind kind, int nodes) {
    switch (kind) {
        case Kind::kMemory:
            return "it is memory of one node, and checkpoints go with it";
        case Kind::kContainer:
            return "it is the container's own layer, and checkpoints go with it";
        case Kind::kNfs:
            return nodes > 1 ? "several nodes write to one file on it slowly" : "";
        case Kind::kDisk:
        case Kind::kParallel:
            break;
    }
    return "";
}

}  // namespace

FileSystem file_system_of(std::uint32_t magic, int nodes) {
    const auto known = std::ranges::find(kKnown, magic, &Known::magic);
    if (known == kKnown.end()) return {fmt::format("unknown kind {:#x}", magic), ""};
    return {std::string(known->name), doubt_about(known->kind, nodes)};
}

std::uint32_t file_system_magic(const std::filesystem::path& path) {
    struct statfs status {};
    if (statfs(path.c_str(), &status) != 0)
        throw RunError(fmt::format("statfs {}: {}", path.string(), std::strerror(errno)));
    return static_cast<std::uint32_t>(status.f_type);
}

}  // namespace fullshard::doctor
