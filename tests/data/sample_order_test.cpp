// The order of samples and the counters do not depend on how steps are shared out.
#include "base/error.h"
#include "base/rng.h"
#include "data/loader.h"
#include "data/prefetching_loader.h"
#include "data/toy_source.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

namespace fullshard::data {
namespace {

using Ids = std::vector<SampleId>;

constexpr std::int64_t kGlobalBatch = 24;
constexpr std::int64_t kFirstTokenOfSource = 1'000'000;

/// Three sources that are cut in different ways, of which the last has a loss mask. Tokens tell
/// source and position.
std::vector<TrainingSource> three_sources() {
    const auto windows = [](std::shared_ptr<ToySource> source, Packing packing) {
        const TokenRange all{0, source->size()};
        return Windows(std::move(source), all, 4,
                       Cutting{.packing = packing, .document_mask = true});
    };
    auto masked = toy_documents({3, 5, 2, 9, 4}, 3 * kFirstTokenOfSource);
    for (std::int64_t i = 0; i < masked->size(); ++i)
        masked->loss_mask.push_back(static_cast<std::uint8_t>(i % 3 != 0));
    return {{"stream", windows(toy_documents({50, 61}, 1 * kFirstTokenOfSource), Packing::kStream),
             3.0},
            {"packed",
             windows(toy_documents({3, 2, 7, 4, 1, 1, 6}, 2 * kFirstTokenOfSource),
                     Packing::kDocuments),
             1.0},
            {"masked", windows(masked, Packing::kNone), 1.0}};
}

TrainingLoader loader_of(std::int64_t micro_batch, bool shuffle = true) {
    return {three_sources(), {micro_batch, kGlobalBatch / micro_batch}, 5, shuffle};
}

/// The samples in a batch, by their first tokens.
class Recogniser {
  public:
    Recogniser() {
        const auto sources = three_sources();
        for (std::int64_t s = 0; s < std::ssize(sources); ++s) {
            const Windows& windows = sources[static_cast<std::size_t>(s)].windows;
            std::vector<std::int64_t> tokens(4), targets(4);
            for (std::int64_t w = 0; w < windows.count(); ++w) {
                windows.read(w, tokens, targets);
                EXPECT_TRUE(by_token_.emplace(tokens.front(), SampleId{s, w}).second);
            }
        }
    }
    void append(const TokenBatch& batch, Ids& ids) const {
        for (std::int64_t row = 0; row < batch.batch; ++row)
            ids.push_back(
                by_token_.at(batch.tokens.at(static_cast<std::size_t>(row * batch.sequence))));
    }

  private:
    std::map<std::int64_t, SampleId> by_token_;
};

/// What `world_size` ranks read in steps [first, end), in the order of micro-batches.
Ids ids_of_ranks(const TrainingLoader& loader, std::int64_t world_size, std::int64_t accumulations,
                 std::int64_t first, std::int64_t end, const Recogniser& recogniser) {
    std::map<std::pair<std::int64_t, std::int64_t>, Ids> parts;  // by step and g
    for (std::int64_t rank = 0; rank < world_size; ++rank) {
        PrefetchingLoader batches(loader, {rank, world_size, accumulations, first, end}, rank % 3);
        for (std::int64_t step = first; step < end; ++step)
            for (std::int64_t a = 0; a < accumulations; ++a)
                recogniser.append(batches.load(step, a),
                                  parts[{step, micro_batch_index(a, rank, world_size)}]);
    }
    Ids all;
    for (const auto& [at, ids] : parts) all.insert(all.end(), ids.begin(), ids.end());
    return all;
}

TEST(SampleOrder, IsTheSameForAnyWorldSizeMicroBatchAccumulationAndRestart) {
    const Recogniser recogniser;
    const std::int64_t steps = 90;  // more than two blocks of the mixture
    const TrainingLoader reference = loader_of(kGlobalBatch);
    Ids expected;
    for (std::int64_t i = 0; i < steps * kGlobalBatch; ++i) expected.push_back(reference.sample(i));
    EXPECT_EQ(ids_of_ranks(reference, 1, 1, 0, steps, recogniser), expected);
    int shapes = 0;
    for (const std::int64_t world_size : {1, 2, 3, 4, 6, 8, 12, 24}) {
        for (const std::int64_t micro_batch : {1, 2, 3, 4, 8, 12}) {
            if (kGlobalBatch % (world_size * micro_batch) != 0) continue;
            ++shapes;
            const std::int64_t accumulations = kGlobalBatch / (world_size * micro_batch);
            const TrainingLoader loader = loader_of(micro_batch);
            const std::int64_t restart = (7 * shapes) % steps;  // mid-epoch and elsewhere
            const std::int64_t end = std::min(restart + 12, steps);
            const Ids after =
                ids_of_ranks(loader, world_size, accumulations, restart, end, recogniser);
            EXPECT_EQ(after, Ids(expected.begin() + restart * kGlobalBatch,
                                 expected.begin() + end * kGlobalBatch))
                << "W " << world_size << " micro-batch " << micro_batch << " from " << restart;
        }
    }
    EXPECT_GT(shapes, 20);
}

TEST(SampleOrder, EachSourceHasItsOwnEpochs) {
    for (const bool shuffle : {true, false}) {
        const TrainingLoader loader = loader_of(1, shuffle);
        std::vector<Ids> of_source(3);
        for (std::int64_t i = 0; i < 4 * Mixture::kBlock; ++i) {
            const SampleId id = loader.sample(i);
            of_source.at(static_cast<std::size_t>(id.source)).push_back(id);
        }
        for (std::int64_t s = 0; s < 3; ++s) {
            const auto& ids = of_source[static_cast<std::size_t>(s)];
            std::map<std::int64_t, std::int64_t> visits;
            for (const SampleId& id : ids) ++visits[id.window];
            const std::int64_t windows = loader.windows(s).count();
            EXPECT_EQ(std::ssize(visits), windows);
            const std::int64_t epochs = std::ssize(ids) / windows;
            for (const auto& [window, times] : visits) {
                EXPECT_GE(times, epochs);
                EXPECT_LE(times, epochs + 1);
            }
            EXPECT_NEAR(loader.steps_per_epoch(s) * kGlobalBatch * std::ssize(ids),
                        windows * 4 * Mixture::kBlock, 1e-6);
        }
    }
}

TEST(SampleOrder, OneNamedSourceIsReadLikeAnUnnamedOne) {
    const auto source = toy_documents({101});
    const Windows windows(source, {0, 101}, 4, TargetRule::kNext);
    const TrainingLoader plain(windows, {2, 3}, 77, true);
    const TrainingLoader named({{"books", windows, 0.3}}, {2, 3}, 77, true);
    const Sampler sampler(77, windows.count(), true);
    for (std::int64_t i = 0; i < 200; ++i) {
        EXPECT_EQ(plain.sample(i), (SampleId{0, sampler.sample(i)}));
        EXPECT_EQ(named.sample(i), plain.sample(i));
    }
    EXPECT_DOUBLE_EQ(named.steps_per_epoch(), plain.steps_per_epoch());
    EXPECT_EQ(named.sources().front().name, "books");
}

TEST(Counters, AreWhatTheBatchesHold) {
    const TrainingLoader loader = loader_of(4);
    const Recogniser recogniser;
    std::vector<std::int64_t> total(3);
    TokenBatch batch;
    for (std::int64_t step = 0; step < 100; ++step) {
        EXPECT_EQ(loader.valid_targets_before(step), total) << step;
        std::vector<std::int64_t> in_step(3), predicted(3);
        for (std::int64_t g = 0; g < kGlobalBatch / 4; ++g) {
            loader.load(step, g, batch);
            Ids ids;
            recogniser.append(batch, ids);
            for (std::int64_t i = 0; i < batch.batch * batch.sequence; ++i) {
                if (batch.targets[static_cast<std::size_t>(i)] < 0) continue;
                const SampleId& id = ids[static_cast<std::size_t>(i / batch.sequence)];
                ++in_step[static_cast<std::size_t>(id.source)];
            }
        }
        loader.add_valid_targets(step, predicted);
        EXPECT_EQ(predicted, in_step);
        EXPECT_EQ(loader.valid_targets(step), in_step[0] + in_step[1] + in_step[2]);
        for (std::size_t s = 0; s < 3; ++s) total[s] += in_step[s];
    }
}

TEST(Counters, OfOneUniformSourceAreArithmetic) {
    for (const bool shuffle : {true, false}) {
        for (std::int64_t tokens = 2; tokens < 30; ++tokens) {
            const Windows windows(toy_documents({tokens}), {0, tokens}, 4, TargetRule::kNext);
            ASSERT_TRUE(windows.uniform());
            const TrainingLoader loader(windows, {1, 1}, 3, shuffle);
            std::int64_t total = 0;
            for (std::int64_t step = 0; step < 25; ++step) {
                EXPECT_EQ(loader.valid_targets_before(step), (std::vector{total}))
                    << tokens << " tokens, step " << step;
                total += loader.valid_targets(step);
            }
        }
    }
    // No loop over samples would end here.
    const auto source = toy_documents({1001});
    const TrainingLoader loader(Windows(source, {0, 1001}, 4, TargetRule::kNext), {1 << 10, 1}, 3,
                                true);
    const std::int64_t steps = std::int64_t{1} << 40;  // 2^50 samples of four targets
    EXPECT_EQ(loader.valid_targets_before(steps).front(), std::int64_t{1} << 52);
}

}  // namespace
}  // namespace fullshard::data
