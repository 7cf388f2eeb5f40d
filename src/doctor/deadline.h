// Limits on work that no timeout of ours reaches: system calls, and calls of libraries.
#pragma once

#include <functional>
#include <string>

namespace fullshard::doctor {

/// Runs `work`, which calls no MPI, in a thread and waits for it. Throws what it threw, and
/// RunError naming `what` when it has not ended within `seconds`: it is then left to itself, so it
/// must own all that it uses.
void within(double seconds, const std::string& what, std::function<void()> work);

}  // namespace fullshard::doctor
