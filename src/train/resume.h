// May this deck go on from that checkpoint?
#pragma once

#include "checkpoint/format/manifest.h"
#include "config/deck.h"

#include <string>
#include <vector>

namespace fullshard::train {

/// Throws UsageError listing the keys that must not change between a run and its continuation, with
/// both values: the model (unless checkpoint.load_strict is off), the data and their order, the
/// seed and the global batch. Returns a sentence for each change that is allowed but makes the
/// numbers differ from an uninterrupted run. `deck` has its batch sizes resolved.
std::vector<std::string> check_resumable(const config::Deck& deck,
                                         const checkpoint::Manifest& manifest);

}  // namespace fullshard::train
