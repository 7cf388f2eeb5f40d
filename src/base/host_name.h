// The name of the machine that this process runs on.
#pragma once

#include <string>

namespace fullshard {

/// As the kernel has it, with or without a domain. Throws RunError.
std::string host_name();

}  // namespace fullshard
