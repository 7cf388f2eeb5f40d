// Writes the logits of a deck's model, sharded over the ranks, for comparison with other programs:
//
//     mpirun -n N write_logits DECK [--section.key value ...] --logits.tokens 1,2,3 --logits.out
//     FILE
//
// FILE gets fp32 [tokens, vocab_size] of one sequence with the weights in model.init_from.
#include "base/error.h"
#include "base/files.h"
#include "comm/mpi_session.h"
#include "config/parser.h"
#include "train/architecture.h"
#include "train/assemble.h"
#include "train/gemm_choice.h"
#include "train/owned_pieces.h"
#include "train/parameter_groups.h"
#include "train/sharded_model.h"

#include <cstdint>
#include <fstream>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace fullshard {
namespace {

/// Takes `option` and its value out of the words.
std::string take(std::vector<std::string>& words, const std::string& option) {
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
        if (words[i] != option) continue;
        std::string value = words[i + 1];
        words.erase(words.begin() + static_cast<std::ptrdiff_t>(i),
                    words.begin() + static_cast<std::ptrdiff_t>(i) + 2);
        return value;
    }
    throw UsageError("write_logits needs " + option);
}

data::TokenBatch batch_of(const std::string& numbers) {
    data::TokenBatch batch;
    std::istringstream stream(numbers);
    for (std::string number; std::getline(stream, number, ',');)
        batch.tokens.push_back(std::stoll(number));
    batch.targets.assign(batch.tokens.size(), data::kIgnoredTarget);
    batch.batch = 1;
    batch.sequence = std::ssize(batch.tokens);
    return batch;
}

void write_logits(std::vector<std::string> words, const comm::Group& job) {
    const data::TokenBatch batch = batch_of(take(words, "--logits.tokens"));
    const std::string out = take(words, "--logits.out");
    const std::string path = words.at(0);
    const config::Deck deck =
        train::with_model_config(config::parse(read_file(path), path, std::span(words).subspan(1)));
    const auto model = train::make_model(deck, {});
    train::ShardedModel sharded(
        deck, {.micro_batch = 1, .grad_accum_steps = 1, .global_batch = job.size()}, model,
        train::with_groups(model->spec(), deck.optimizer),
        train::choose_gemm(deck.kernels, {}, *model, job).gemm, job);
    train::load_weights(sharded.store(), sharded.layout(), sharded.world(), deck.model.init_from,
                        train::architecture_of(deck));
    std::ofstream file;
    if (job.rank() == 0) file.open(out, std::ios::binary);
    for (std::int64_t position = 0; position < batch.sequence; ++position) {
        const std::vector<float> logits =
            sharded.engine().next_logits(batch, std::vector<std::int64_t>{position});
        const auto bytes = std::as_bytes(std::span(logits));
        file.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    }
}

}  // namespace
}  // namespace fullshard

int main(int argc, char** argv) {
    fullshard::comm::MpiSession session(argc, argv);
    try {
        fullshard::write_logits({argv + 1, argv + argc}, fullshard::comm::Group::world(300.0));
    } catch (const std::exception& error) {
        fullshard::comm::MpiSession::abort(error.what(), 1);
    }
}
