#include "train/training_outcome.h"

#include "data/synthetic_source.h"
#include "model/simple_transformer.h"
#include "support/store_reading.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <span>
#include <utility>

namespace fullshard::testing {

namespace {
constexpr std::uint64_t kDataSeed = 11;
constexpr double kRate = 3e-3;
}  // namespace

bool TrainingOutcome::operator==(const TrainingOutcome& other) const {
    return same_bits(parameters, other.parameters) &&
           same_bits(first_moments, other.first_moments) &&
           same_bits(second_moments, other.second_moments) && losses == other.losses &&
           norms == other.norms && validation_loss == other.validation_loss;
}

data::TrainingLoader small_loader(std::int64_t vocab_size, std::int64_t micro_batches_a_step) {
    const auto source = std::make_shared<data::SyntheticSource>(3, 47, 9, vocab_size);
    return {data::Windows(source, {0, source->size()}, 9, data::TargetRule::kNext),
            {2, micro_batches_a_step},
            kDataSeed,
            true};
}

TrainingOutcome run_training(const comm::Group& ranks, std::shared_ptr<const model::Model> model,
                             std::int64_t vocab_size, const RigOptions& options,
                             std::int64_t steps) {
    TrainingRig rig(ranks, std::move(model), options);
    const data::TrainingLoader data =
        small_loader(vocab_size, options.micro_batches * ranks.size());
    TrainingOutcome outcome;
    for (std::int64_t step = 0; step < steps; ++step) {
        const auto load = [&](std::int64_t g) {
            data::TokenBatch batch;
            data.load(step, g, batch);
            return batch;
        };
        const auto result = rig.accumulate(step, load, data.valid_targets(step));
        outcome.losses.push_back(result.loss);
        outcome.norms.push_back(result.grad_norm);
        if (step == 0) outcome.first_gradients = rig.gradients();
        rig.update(kRate);
    }
    const auto held_out = std::make_shared<data::SyntheticSource>(4, 7, 9, vocab_size);
    const data::ValidationLoader validation(
        data::Windows(held_out, {0, held_out->size()}, 9, data::TargetRule::kNext), 2);
    outcome.validation_loss = rig.evaluate(validation).loss;
    outcome.parameters = joined(rig.parameters());
    const auto moments = [&](auto moment) {
        std::vector<std::span<const float>> owned;
        for (std::int64_t unit = 0; unit < rig.optimizer().unit_count(); ++unit) {
            owned.push_back((rig.optimizer().*moment)(unit).template as<float>());
        }
        return joined(gather_owned(owned, rig.layout(), rig.gradient_group()));
    };
    outcome.first_moments = moments(&optim::AdamW::first_moment);
    outcome.second_moments = moments(&optim::AdamW::second_moment);
    return outcome;
}

TrainingOutcome run_training(const comm::Group& ranks, const spec::SimpleTransformer& model,
                             const RigOptions& options, std::int64_t steps) {
    return run_training(ranks, model::make_simple_transformer(model), model.vocab_size, options,
                        steps);
}

void expect_close(const TrainingOutcome& actual, const TrainingOutcome& expected,
                  const std::string& what) {
    for (std::size_t step = 0; step < expected.losses.size(); ++step) {
        EXPECT_NEAR(actual.losses[step], expected.losses[step], 1e-6 * expected.losses[step])
            << what << ", step " << step;
    }
    for (std::size_t p = 0; p < expected.first_gradients.size(); ++p) {
        double difference = 0.0, norm = 0.0;
        for (std::size_t e = 0; e < expected.first_gradients[p].size(); ++e) {
            const double wanted = expected.first_gradients[p][e];
            difference += std::pow(actual.first_gradients[p][e] - wanted, 2);
            norm += wanted * wanted;
        }
        EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(norm)) << what << ", parameter " << p;
    }
}

}  // namespace fullshard::testing
