#include "config/deck.h"

#include <tuple>

namespace fullshard::config {
namespace {

auto sections(const Deck& deck) {
    return std::tie(deck.run, deck.model, deck.data, deck.generate, deck.train, deck.elasticity,
                    deck.optimizer, deck.schedule, deck.shard, deck.reduce, deck.precision,
                    deck.topology, deck.comm, deck.stop, deck.checkpoint, deck.kernels, deck.device,
                    deck.trace, deck.fault);
}

}  // namespace

bool operator==(const Deck& a, const Deck& b) {
    return sections(a) == sections(b);
}

std::string origin_of(const Deck& deck, std::string_view key) {
    const auto found = deck.origins.find(key);
    return found == deck.origins.end() ? "default" : found->second;
}

}  // namespace fullshard::config
