// Shared parameters of models that are built from users' modules.
#pragma once

#include <string>

namespace fullshard::model {

/// Says that parameters are the same as others of an earlier stage: one memory, one gradient.
/// `name` and `to` are full names of two parameters ("head.weight", "embedding.weight"), or
/// prefixes of such names: of two stages ("again", "first") or modules, all of whose parameters are
/// then tied in pairs of equal rest ("again.0.bias" to "first.0.bias").
struct Tie {
    std::string name;
    std::string to;
};

}  // namespace fullshard::model
