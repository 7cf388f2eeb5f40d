// Runs a model's stages by the schedule of visits over a store: the only part of training that
// sees tensors.
#pragma once

#include "base/span.h"
#include "data/loader.h"
#include "kernels/gemm.h"
#include "model/model.h"
#include "shard/layout.h"
#include "shard/schedule.h"
#include "shard/unit_store.h"
#include "train/phases.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fullshard::train {

/// Which micro-batch of the run this is: dropout depends on it and on nothing else.
struct MicroBatchId {
    std::int64_t step = 0;
    std::int64_t index = 0;  ///< g, over all ranks
};

struct EngineOptions {
    std::uint64_t seed = 0;
    int threads = 1;                  ///< compute threads
    DType compute = DType::kFloat32;  ///< of parameters, as the store shows them, and activations
    DType buffer = DType::kFloat32;   ///< of the stages' floating-point buffers
    /// Of every so many blocks the last one keeps only its input and runs again in the backward
    /// pass; 0: none does. Results have the same bits.
    std::int64_t checkpoint_every_block = 0;
    /// Multiplies the fp32 matrices of stages that leave it to others; null: LibTorch does.
    std::shared_ptr<const kernels::Gemm> gemm = {};
    /// What the store is on and the stages compute on; none: the CPU. It outlives the engine.
    std::optional<model::OnDevice> device = std::nullopt;
};

/// Interprets the schedule. Forward: each visit takes its units' leases, starts the prefetches and
/// runs its stages, each as an autograd graph of its own. Backward: each visit differentiates its
/// stages in reverse, at most to the first one that has a trainable parameter, and starts the
/// reductions of gradients that are complete. There are no hooks.
class Engine {
  public:
    /// Binds views of the store's memory to stages. All references must outlive the engine.
    Engine(const model::Model& model, const shard::Layout& layout, const shard::Schedule& schedule,
           shard::UnitStore& store, PhaseClock& clock, const EngineOptions& options);
    ~Engine();

    /// Forward and backward pass; gradients, times `loss_scale`, go to the store. The loss is kept
    /// for `take_losses`. On a device it returns before that is done. Collective over the store's
    /// ranks.
    void train(const data::TokenBatch& batch, const MicroBatchId& id, double loss_factor,
               double loss_scale = 1.0);

    /// The losses that `train` has kept, in order: each summed over the micro-batch and times its
    /// `loss_factor`, without `loss_scale`. Waits for the device. Not collective.
    std::vector<double> take_losses();

    /// Summed loss over the valid targets without dropout, gradients or any effect on later
    /// training. Collective over the store's ranks.
    double evaluate(const data::TokenBatch& batch);

    /// Logits in fp32, [batch, vocabulary], of one position in each row of the batch, whose targets
    /// are not read; without dropout, gradients or any effect on later training. Collective over
    /// the store's ranks.
    std::vector<float> next_logits(const data::TokenBatch& batch,
                                   std::span<const std::int64_t> positions);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// Instructions that computing uses here, for example "AVX2" or "AVX512 + bf16": results of other
/// ones have other bits.
std::string cpu_capability();
/// Of the LibTorch whose headers this was compiled with, for example "2.11.0".
std::string torch_version();

}  // namespace fullshard::train
