#include "base/host_name.h"

#include "base/error.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace fullshard {

std::string host_name() {
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) != 0) {
        throw RunError(fmt::format("gethostname failed: {}", std::strerror(errno)));
    }
    return name.data();
}

}  // namespace fullshard
