// A program that trains its own model, the mixer, wherever the deck says model.family = custom.
#include "app/program.h"
#include "custom_model/mixer.h"

int main(int argc, char** argv) {
    return fullshard::app::run_program(argc, argv, [](const fullshard::config::Deck& deck) {
        return mixer::make_mixer({.vocab_size = deck.model.vocab_size,
                                  .width = deck.model.d_model,
                                  .blocks = deck.model.num_layers,
                                  .dropout = deck.model.dropout});
    });
}
