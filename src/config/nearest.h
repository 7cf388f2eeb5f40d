// Guesses what a mistyped word was meant to be.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace fullshard::config {

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (optimal
/// string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate with the least distance (the first of equals), or empty when even that one is too
/// far to be a typing mistake: more than a quarter of the word's characters, and more than one.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

/// Like nearest() for full key names; a key of the right name is also found when its section is
/// missing or wrong ("lr" and "train.lr" give "optimizer.lr").
std::string nearest_key(std::string_view word, std::span<const std::string> keys);

}  // namespace fullshard::config
