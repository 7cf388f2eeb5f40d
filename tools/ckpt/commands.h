// What the tool does: each command prints to standard output and returns the exit code.
#pragma once

#include "ckpt/command_line.h"

#include <filesystem>

namespace fullshard::ckpt {

/// The checkpoint a path names. Says on standard error which one was found and which were passed
/// over. Throws DataError when there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& path);

int inspect(const Command& command);
int verify(const Command& command);
int diff(const Command& command);
int consolidate(const Command& command);
int import(const Command& command);

}  // namespace fullshard::ckpt
