// Which parameters the deck's groups choose.
#pragma once

#include "config/deck.h"
#include "spec/model_spec.h"

#include <cstddef>
#include <span>
#include <string_view>

namespace fullshard::train {

/// Insertions, deletions and substitutions that turn a name into one that `pattern` matches: 0 when
/// it does already. `*` stands for any characters, `?` for one.
std::size_t pattern_distance(std::string_view pattern, std::string_view name);

/// The first group, in the deck's order, that has a pattern for the parameter of this full name;
/// null when none has.
const config::ParameterGroup* group_of(std::string_view parameter,
                                       std::span<const config::ParameterGroup> groups);

/// The model with the parameters of frozen groups marked as not trainable; a tied parameter goes
/// with the one it is tied to, under whose name alone groups find it. Throws one UsageError that
/// lists the patterns that no parameter's name matches, with the nearest names, and the learning
/// rates of groups where the deck's, whose multiples they are, is 0; and another one when nothing
/// is left to train.
spec::ModelSpec with_groups(spec::ModelSpec model, const config::Optimizer& optimizer);

}  // namespace fullshard::train
