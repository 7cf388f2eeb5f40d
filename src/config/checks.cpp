#include "config/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace fullshard::config {
namespace {

std::int64_t nearest_divisor(std::int64_t number, std::int64_t wanted) {
    for (std::int64_t distance = 0;; ++distance) {
        const std::int64_t below = wanted - distance;
        if (below >= 1 && number % below == 0) return below;
        if (number % (wanted + distance) == 0) return wanted + distance;
    }
}

void check_model(const Deck& deck, std::vector<Contradiction>& found) {
    const Model& model = deck.model;
    if (model.d_model % model.num_heads != 0) {
        found.push_back({{"model.d_model", "model.num_heads"},
                         "the heads cannot share d_model equally",
                         fmt::format("set model.num_heads = {} or model.d_model = {}",
                                     nearest_divisor(model.d_model, model.num_heads),
                                     (model.d_model / model.num_heads + 1) * model.num_heads)});
    }
}

void check_data(const Deck& deck, std::vector<Contradiction>& found) {
    const Data& data = deck.data;
    if (data.source == Source::kText && data.path.empty()) {
        found.push_back({{"data.source", "data.path"},
                         "a text source needs a file or folder",
                         "set data.path, or data.source = synthetic"});
    }
    if (data.targets == Targets::kRolled && data.sequence < 2) {
        found.push_back({{"data.targets", "data.sequence"},
                         "a sequence of one token rolled by one is itself",
                         "set data.sequence = 2 or more, or data.targets = next"});
    }
}

void check_train(const Deck& deck, std::vector<Contradiction>& found) {
    const Train& train = deck.train;
    if (train.eval_every > 0 && deck.data.validation_fraction == 0.0) {
        found.push_back({{"train.eval_every", "data.validation_fraction"},
                         "there is nothing to evaluate on",
                         "set train.eval_every = 0, or data.validation_fraction above 0"});
    }
    // A zero stands for "derive"; as a factor of 1 it leaves what must divide global_batch at any
    // number of ranks.
    const std::int64_t factor = std::max<std::int64_t>(train.micro_batch, 1) *
                                std::max<std::int64_t>(train.grad_accum_steps, 1);
    if (train.global_batch % factor != 0) {
        found.push_back(
            {{"train.global_batch", "train.micro_batch", "train.grad_accum_steps"},
             "global_batch is no multiple of micro_batch * grad_accum_steps, so no number "
             "of ranks fits",
             "set one of the three to 0 to have it derived"});
    }
    if (train.stop_at_step > train.steps) {
        found.push_back({{"train.stop_at_step", "train.steps"},
                         "the run ends before it could stop",
                         fmt::format("set train.stop_at_step = {} or less", train.steps)});
    }
    if (deck.schedule.warmup_steps > train.steps) {
        found.push_back({{"schedule.warmup_steps", "train.steps"},
                         "the warm-up would outlast the training",
                         fmt::format("set schedule.warmup_steps = {} or less", train.steps)});
    }
}

void check_sharding(const Deck& deck, std::vector<Contradiction>& found) {
    if (deck.shard.store == Store::kResident && !deck.comm.node_shared) {
        found.push_back({{"shard.store", "comm.node_shared"},
                         "a resident store is made of shared memory",
                         "set comm.node_shared = on, or shard.store = slotted"});
    }
}

void check_fault(const Deck& deck, std::vector<Contradiction>& found) {
    if (deck.fault.throw_at_step > deck.train.steps) {
        found.push_back({{"fault.throw_at_step", "train.steps"},
                         "the fault would never happen",
                         fmt::format("set fault.throw_at_step = {} or less", deck.train.steps)});
    }
}

}  // namespace

std::vector<Contradiction> contradictions(const Deck& deck) {
    std::vector<Contradiction> found;
    check_model(deck, found);
    check_data(deck, found);
    check_train(deck, found);
    check_sharding(deck, found);
    check_fault(deck, found);
    return found;
}

std::vector<std::string> warnings(const Deck& deck) {
    std::vector<std::string> result;
    if (deck.model.attention == Attention::kBidirectional) {
        result.push_back(
            "model.attention = bidirectional with shifted targets: every position sees the token "
            "it "
            "is to predict, so the loss falls without the model learning to predict; set "
            "model.attention = causal");
    }
    if (deck.data.source == Source::kText && deck.data.targets == Targets::kRolled) {
        result.push_back(
            "data.targets = rolled on text: the last position of a sequence is to predict the "
            "sequence's first token, not the one that follows in the text; set data.targets = "
            "next");
    }
    const Fault& fault = deck.fault;
    if (fault.throw_at_step > 0) {
        result.push_back(
            fmt::format("FAULT INJECTION: rank {} will throw in step {} "
                        "(fault.throw_at_step, fault.rank)",
                        fault.rank, fault.throw_at_step));
    }
    if (fault.delay_us > 0) {
        result.push_back(
            fmt::format("FAULT INJECTION: ranks are delayed by up to {} us at "
                        "synchronisation points (fault.delay_us); times mean nothing",
                        fault.delay_us));
    }
    if (fault.poison) {
        result.push_back(
            "FAULT INJECTION: slots are filled with NaN between uses (fault.poison); times mean "
            "nothing");
    }
    return result;
}

}  // namespace fullshard::config
