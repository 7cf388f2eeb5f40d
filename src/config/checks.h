// What no single key can tell: values that exclude each other, and values that are legal but rarely
// meant.
#pragma once

#include "config/deck.h"

#include <string>
#include <vector>

namespace fullshard::config {

/// Values that cannot all hold.
struct Contradiction {
    std::vector<std::string> keys;
    std::string what;
    std::string remedy;
};

std::vector<Contradiction> contradictions(const Deck& deck);

/// One sentence for each thing that the user should know before trusting the run's numbers: values
/// that are rarely meant, keys that differ from their defaults though nothing reads them, and
/// faults on purpose.
std::vector<std::string> warnings(const Deck& deck);

/// Whether a fault is asked for that happens to Fault::rank.
bool happens_to_a_rank(const Fault& fault);

}  // namespace fullshard::config
