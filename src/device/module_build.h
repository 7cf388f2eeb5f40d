// What the program and the device module that it loads must have in common.
#pragma once

#include <string>

namespace fullshard::device {

/// "FullShard 0.1.0, commit 1a2b3c4d5e6f, Release, GNU 12.2.0". They exchange C++ objects, so
/// nothing less than the same sources, compiled alike, will do.
std::string module_build();

}  // namespace fullshard::device
