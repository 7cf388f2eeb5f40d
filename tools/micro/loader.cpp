// fullshard-micro-loader: batches out of a token file in HDF5, beside the plain loop that widens as
// many tokens.
#include "data/loader.h"

#include "base/error.h"
#include "data/hdf5_source.h"
#include "data/prefetching_loader.h"
#include "micro/program.h"
#include "micro/report.h"
#include "micro/token_file.h"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

namespace fullshard::micro {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kVocabulary = 50257;
constexpr std::int64_t kSequence = 1024;
constexpr std::int64_t kMicroBatch = 8;
constexpr std::int64_t kBatchTokens = kSequence * kMicroBatch;
constexpr std::int64_t kStepsATurn = 64;

/// A file of this rank, removed at the end.
class TokenFile {
  public:
    TokenFile(fs::path path, std::int64_t tokens)
        : path_(std::move(path)), tokens_(static_cast<std::size_t>(tokens)) {
        for (std::size_t i = 0; i < tokens_.size(); ++i)
            tokens_[i] = static_cast<std::uint16_t>(i * 7919 % kVocabulary);
        write_token_file(path_, tokens_);
    }
    ~TokenFile() {
        std::error_code ignored;
        fs::remove(path_, ignored);
    }
    TokenFile(const TokenFile&) = delete;
    TokenFile& operator=(const TokenFile&) = delete;

    const fs::path& path() const { return path_; }
    std::span<const std::uint16_t> tokens() const { return tokens_; }

  private:
    fs::path path_;
    std::vector<std::uint16_t> tokens_;
};

/// What a step takes at the least: each token widened once as input and once as target.
class PlainLoop {
  public:
    explicit PlainLoop(std::span<const std::uint16_t> tokens)
        : tokens_(tokens), inputs_(kBatchTokens), targets_(kBatchTokens) {}

    void run() {
        for (std::int64_t step = 0; step < kStepsATurn; ++step) {
            const auto count = static_cast<std::size_t>(kBatchTokens);
            if (next_ + count + 1 > tokens_.size()) next_ = 0;
            const std::uint16_t* source = tokens_.data() + next_;
            for (std::size_t i = 0; i < count; ++i) inputs_[i] = source[i];
            for (std::size_t i = 0; i < count; ++i) targets_[i] = source[i + 1];
            next_ += count;
        }
    }

  private:
    std::span<const std::uint16_t> tokens_;
    std::vector<std::int64_t> inputs_, targets_;
    std::size_t next_ = 0;
};

/// Steps of one rank in order, with or without a thread that reads ahead.
class Steps {
  public:
    Steps(std::shared_ptr<const data::TokenSource> source, bool shuffle, std::int64_t ahead)
        : loader_(data::Windows(source, {0, source->size()}, kSequence, data::TargetRule::kNext),
                  {.micro_batch = kMicroBatch, .micro_batches = 1}, /*seed=*/1, shuffle),
          share_(loader_, {.end_step = std::int64_t{1} << 40}, ahead) {}

    void run() {
        for (std::int64_t i = 0; i < kStepsATurn; ++i) share_.load(next_++, 0);
    }

    /// The next step against the tokens of the file.
    void check(std::span<const std::uint16_t> tokens) {
        const data::TokenBatch& batch = share_.load(next_, 0);
        for (std::int64_t row = 0; row < kMicroBatch; ++row) {
            const data::SampleId sample = loader_.sample(next_ * kMicroBatch + row);
            for (std::int64_t i = 0; i < kSequence; ++i) {
                const auto at = static_cast<std::size_t>(sample.window * kSequence + i);
                const auto in_batch = static_cast<std::size_t>(row * kSequence + i);
                if (at + 1 < tokens.size() && (batch.tokens[in_batch] != tokens[at] ||
                                               batch.targets[in_batch] != tokens[at + 1]))
                    throw RunError(fmt::format("step {} row {}: a wrong token", next_, row));
            }
        }
        ++next_;
    }

  private:
    data::TrainingLoader loader_;
    data::PrefetchingLoader share_;
    std::int64_t next_ = 0;
};

void run(const comm::Group& world, const Options& options) {
    fs::create_directories(options.folder);
    const TokenFile file(options.folder / fmt::format("micro-loader-{}.h5", world.rank()),
                         (options.mib << 20) / 2);
    const auto source = data::open_hdf5(file.path(), kVocabulary);
    Steps in_order(source, /*shuffle=*/false, /*ahead=*/0);
    Steps shuffled(source, /*shuffle=*/true, /*ahead=*/0);
    Steps ahead(source, /*shuffle=*/true, /*ahead=*/4);
    PlainLoop plain(file.tokens());
    // Tokens of 2 bytes are read twice, those of 8 bytes written twice.
    const double bytes = 20.0 * static_cast<double>(kBatchTokens * kStepsATurn * world.size());
    const auto contender = [&](std::string name, Steps& steps) {
        return Contender{
            std::move(name), bytes, [&] { steps.run(); }, {}, [&] { steps.check(file.tokens()); }};
    };
    const std::vector<Contender> contenders{{"plain loop in memory", bytes, [&] { plain.run(); }},
                                            contender("batches in order", in_order),
                                            contender("batches in random order", shuffled),
                                            contender("batches read ahead by a thread", ahead)};
    const Turns turns(world, contenders, options.rounds);
    const Report report("loader", world, options);
    report.title(fmt::format("{} batches of {} x {} tokens a turn, {} MiB of tokens in HDF5",
                             kStepsATurn, kMicroBatch, kSequence, options.mib));
    const Limit limit{Limit::Of::kBandwidth, {"plain loop in memory"}};
    report.line(turns, "plain loop in memory");
    report.line(turns, "batches in order", limit);
    report.line(turns, "batches in random order", limit);
    report.line(turns, "batches read ahead by a thread", limit);
}

}  // namespace
}  // namespace fullshard::micro

int main(int argc, char** argv) {
    using fullshard::micro::run;
    return fullshard::micro::run_program(
        argc, argv,
        {.name = "fullshard-micro-loader",
         .about =
             "Batches of tokens out of an HDF5 file in the page cache, beside a loop that only "
             "widens as\n"
             "many tokens in memory. 20 bytes of memory traffic a token. Alone or under mpirun.",
         .mib = "MiB of 16-bit tokens of each rank",
         .files = "where token files are made, and removed at the end",
         .defaults = {.mib = 64, .folder = "."},
         .run = run});
}
