// What a deck's gpt2 and llama models are to files of other programs.
#pragma once

#include "config/deck.h"
#include "spec/architecture.h"

#include <optional>

namespace fullshard::train {

/// The hyper-parameters of a deck's model of family gpt2 or llama; none for other families.
std::optional<spec::Architecture> architecture_of(const config::Deck& deck);

/// The deck with what model.config says in place of model keys that nothing sets, and with the
/// defaults that belong to its family. A key's origin is then that file. Throws UsageError for a
/// family that takes no such file, a file that describes another family, or nothing; DataError for
/// one that is damaged. Not collective.
config::Deck with_model_config(config::Deck deck);

}  // namespace fullshard::train
