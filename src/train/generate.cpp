#include "train/generate.h"

#include "base/rng.h"
#include "comm/agree.h"
#include "config/batch.h"
#include "data/token_table.h"
#include "train/architecture.h"
#include "train/assemble.h"
#include "train/gemm_choice.h"
#include "train/owned_pieces.h"
#include "train/parameter_groups.h"
#include "train/sampling.h"
#include "train/sharded_model.h"
#include "train/stop_controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fullshard::train {

namespace {

/// What is to be continued, and how tokens become text.
struct Prompt {
    std::vector<std::int64_t> tokens;
    data::TokenTable table = data::TokenTable::of_bytes();
};

Prompt read_prompt(const config::Deck& deck) {
    const config::Generate& keys = deck.generate;
    Prompt prompt{keys.prompt_tokens, data::TokenTable::open(deck.data.tokenizer)};
    if (!keys.prompt.empty() && !deck.data.tokenizer.empty()) {
        throw UsageError(
            "generate.prompt is text, and this model's tokens are not bytes: set "
            "generate.prompt_tokens to what `tools/tokenize.py encode` prints for it");
    }
    for (const char c : keys.prompt) prompt.tokens.push_back(static_cast<unsigned char>(c));
    if (prompt.tokens.empty()) {
        throw UsageError(
            "there is nothing to continue: set generate.prompt or generate.prompt_tokens");
    }
    for (const std::int64_t token : prompt.tokens) {
        if (token < deck.model.vocab_size) continue;
        throw UsageError(fmt::format("token {} of the prompt is outside model.vocab_size = {}",
                                     token, deck.model.vocab_size));
    }
    return prompt;
}

/// The samples of one rank, which all grow together.
class Samples {
  public:
    /// Samples rank, rank + world_size, ... of `keys.samples`.
    Samples(const config::Generate& keys, const Prompt& prompt, int rank, int world_size)
        : stop_token_(keys.stop_token >= 0 ? keys.stop_token
                                           : prompt.table.end_of_text().value_or(-1)) {
        for (std::int64_t number = rank; number < keys.samples; number += world_size)
            samples_.push_back({mix(keys.seed, static_cast<std::uint64_t>(number)), prompt.tokens});
    }

    bool finished() const { return std::ranges::all_of(samples_, &Sample::finished); }
    /// The last tokens of each sample, at most `context`. A rank without samples computes one of
    /// its own making, since every rank takes part in every pass.
    void fill(data::TokenBatch& batch, std::size_t length, std::size_t context) const {
        const std::size_t sequence = std::min(length, context);
        batch = {};
        for (const Sample& sample : samples_) {
            batch.tokens.insert(batch.tokens.end(),
                                sample.tokens.end() - static_cast<std::ptrdiff_t>(sequence),
                                sample.tokens.end());
        }
        batch.batch = std::max<std::int64_t>(1, std::ssize(samples_));
        batch.sequence = static_cast<std::int64_t>(sequence);
        batch.tokens.resize(static_cast<std::size_t>(batch.batch * batch.sequence));
        batch.targets.assign(batch.tokens.size(), data::kIgnoredTarget);
    }

    /// Draws each sample's token number `position` from logits [samples, vocabulary].
    void extend(std::span<const float> logits, const Sampling& sampling, std::uint64_t position) {
        if (samples_.empty()) return;
        const std::size_t vocabulary = logits.size() / samples_.size();
        for (std::size_t n = 0; n < samples_.size(); ++n) {
            Sample& sample = samples_[n];
            const double uniform = RandomStream(sample.stream).uniform(position);
            const std::int64_t token =
                draw_token(logits.subspan(n * vocabulary, vocabulary), sampling, uniform);
            // A finished one grows on, so that all are equally long; nobody reads its end.
            sample.tokens.push_back(token);
            if (sample.finished() || token != stop_token_) continue;
            sample.end = sample.tokens.size() - 1;
        }
    }

    /// The text of the rank's n-th sample up to its end.
    std::string text(std::size_t n, const data::TokenTable& table) const {
        const Sample& sample = samples_.at(n);
        std::string text;
        for (std::size_t i = 0; i < sample.end.value_or(sample.tokens.size()); ++i)
            text += table.bytes_of(sample.tokens[i]);
        return text;
    }

  private:
    struct Sample {
        std::uint64_t stream = 0;
        std::vector<std::int64_t> tokens;
        std::optional<std::size_t> end = {};  ///< tokens before the one that ended it

        bool finished() const { return end.has_value(); }
    };
    std::int64_t stop_token_;  ///< -1: none
    std::vector<Sample> samples_;
};

/// Whether all ranks are finished; nothing when they agreed to stop. Collective.
std::optional<bool> all_finished(bool mine, const comm::Group& world, StopController& stop) {
    const std::array vote{mine ? 1.0 : 0.0, stop.vote(world.rank())};
    std::vector<double> of_all(2 * static_cast<std::size_t>(world.size()));
    world.all_gather(vote, of_all);
    bool finished = true;
    std::vector<double> votes;
    for (std::size_t i = 0; i < of_all.size(); i += 2) {
        finished = finished && of_all[i] == 1.0;
        votes.push_back(of_all[i + 1]);
    }
    if (stop.judge(votes)) return std::nullopt;
    return finished;
}

void print_samples(const Samples& samples, const config::Generate& keys,
                   const data::TokenTable& table, const comm::Group& world) {
    for (std::int64_t number = 0; number < keys.samples; ++number) {
        const int owner = static_cast<int>(number % world.size());
        std::string text;
        if (world.rank() == owner)
            text = samples.text(static_cast<std::size_t>(number / world.size()), table);
        text = world.broadcast(std::move(text), owner);
        if (world.rank() != 0) continue;
        if (keys.samples > 1) fmt::print("--- sample {} of {}\n", number + 1, keys.samples);
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fputc('\n', stdout);
    }
    if (world.rank() == 0) std::fflush(stdout);
}

}  // namespace

ExitCode run_generation(const config::Deck& deck, const comm::Group& job,
                        const RunEnvironment& environment, Log& log) {
    Prompt prompt;
    std::shared_ptr<const model::Model> model;
    spec::ModelSpec spec;
    comm::agree(job, [&] {
        if (deck.model.init_from.empty()) {
            throw UsageError(
                "generate needs weights: set model.init_from to a checkpoint or to weights of "
                "another program");
        }
        prompt = read_prompt(deck);
        model = make_model(deck, environment.custom_model);
        spec = with_groups(model->spec(), deck.optimizer);
    });
    const config::Batch batch{.micro_batch = 1, .grad_accum_steps = 1, .global_batch = job.size()};
    const GemmChoice products = choose_gemm(deck.kernels, std::nullopt, *model, job);
    ShardedModel sharded(deck, batch, model, spec, products.gemm, job);
    load_weights(sharded.store(), sharded.layout(), sharded.world(), deck.model.init_from,
                 architecture_of(deck));
    StopController stop(environment.stop, deck.stop, std::nullopt);
    const comm::Watchdog::Registration deadlines(environment.watchdog,
                                                 [&stop] { return stop.watch(); });

    const comm::Group& world = sharded.world();
    const config::Generate& keys = deck.generate;
    const Sampling sampling{keys.temperature, keys.top_k, keys.top_p};
    const auto context = static_cast<std::size_t>(
        deck.model.max_positions > 0 ? deck.model.max_positions : deck.data.sequence);
    Samples samples(keys, prompt, world.rank(), world.size());
    data::TokenBatch input;
    for (std::int64_t drawn = 0; drawn < keys.max_tokens; ++drawn) {
        world.ledger().enter("token", drawn);
        samples.fill(input, prompt.tokens.size() + static_cast<std::size_t>(drawn), context);
        const std::vector<std::int64_t> last(static_cast<std::size_t>(input.batch),
                                             input.sequence - 1);
        const std::vector<float> logits = sharded.engine().next_logits(input, last);
        comm::agree(world,
                    [&] { samples.extend(logits, sampling, static_cast<std::uint64_t>(drawn)); });
        const std::optional<bool> finished = all_finished(samples.finished(), world, stop);
        if (!finished) {
            log.info("stopped by {} after {} tokens", stop.reason(), drawn + 1);
            return ExitCode::kStoppedEarly;
        }
        if (*finished) break;
    }
    print_samples(samples, keys, prompt.table, world);
    return ExitCode::kDone;
}

}  // namespace fullshard::train
