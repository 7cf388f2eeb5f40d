// May a run with this deck go on from one with that deck?
#pragma once

#include "config/deck.h"

#include <string>
#include <vector>

namespace fullshard::train {

/// What differs between a run and its continuation, as "KEY was A and is B".
struct Changes {
    /// Must not: the model (unless checkpoint.load_strict is off), the data and their order, the
    /// seed and the global batch.
    std::vector<std::string> forbidden;
    /// May, but makes the numbers differ from an uninterrupted run.
    std::vector<std::string> other_numbers;
};

/// Both decks have their batch sizes resolved.
Changes changes_between(const config::Deck& before, const config::Deck& after);

/// Throws UsageError listing the forbidden changes; returns the others that change numbers.
std::vector<std::string> check_resumable(const config::Deck& before, const config::Deck& after);

}  // namespace fullshard::train
