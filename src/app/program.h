// The whole program, for the stock binary and for those with a model of their own.
#pragma once

#include "train/assemble.h"

namespace fullshard::app {

/// Parses the words, starts MPI, agrees on the deck, trains. Returns the process's exit code:
/// errors that all ranks agreed on end MPI in order, any other ends the whole job. `custom_model`
/// makes the model of decks with model.family = custom.
int run_program(int argc, char** argv, const train::ModelFactory& custom_model = {});

}  // namespace fullshard::app
