// What a short training gives, and how two are compared.
#pragma once

#include "comm/group.h"
#include "data/loader.h"
#include "train/training_rig.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fullshard::testing {

struct TrainingOutcome {
    std::vector<float> parameters;
    std::vector<float> first_moments, second_moments;
    std::vector<double> losses;
    std::vector<double> norms;
    std::vector<std::vector<float>> first_gradients;
    double validation_loss = 0.0;

    /// Bit for bit, without the gradients.
    bool operator==(const TrainingOutcome& other) const;
};

/// The second row of the promise: losses to 1e-6, first gradients to 1e-5 of each tensor's norm.
/// `what` was compared.
void expect_close(const TrainingOutcome& actual, const TrainingOutcome& expected,
                  const std::string& what);

/// Sequences of 9 tokens; 47 of them, so that epochs end within steps. Micro-batches of two.
data::TrainingLoader small_loader(std::int64_t vocab_size, std::int64_t micro_batches_a_step);

/// `steps` steps on small_loader(), then an evaluation. `options.micro_batches` are a rank's.
/// Collective over `ranks`.
TrainingOutcome run_training(const comm::Group& ranks, std::shared_ptr<const model::Model> model,
                             std::int64_t vocab_size, const RigOptions& options,
                             std::int64_t steps);
TrainingOutcome run_training(const comm::Group& ranks, const spec::SimpleTransformer& model,
                             const RigOptions& options, std::int64_t steps);

}  // namespace fullshard::testing
