// A training loop without a model: gradients are a closed-form function of (step, micro-batch,
// stage, element) and of the parameters read, so that any wrong byte anywhere changes the result.
#pragma once

#include "comm/topology.h"
#include "device/device.h"
#include "shard/plan.h"
#include "shard/schedule.h"
#include "shard/strategy.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fullshard::testing {

/// Everything that may differ between two runs of equal results.
struct ToySharding {
    std::string strategy = "full_shard";
    std::int64_t group_size = 0;
    shard::StorePreference store = shard::StorePreference::kAuto;
    int ranks_per_node = 0;
    bool node_shared = true;
    shard::Wrap wrap = {};
    shard::Prefetch prefetch = {};
    std::int64_t slots = 2;
    bool reshard_after_forward = true;  ///< false: units stay until the update
    std::int64_t regather_ranks = 0;
    DType compute = DType::kFloat32;
    DType reduce = DType::kFloat32;
    shard::SumOrder order = shard::SumOrder::kTree;
    shard::Accumulation accumulation = shard::Accumulation::kSharded;
    bool progress_thread = false;  ///< then visits take long enough for it to have work
    shard::Faults faults = {};

    std::string describe() const;
};

/// Parameters of sizes that divide by nothing, several stages of one size, one of them used a
/// second time, a tied matrix, frozen parameters and a frozen stage, one parameter that is never
/// written, one without dimensions, and a stage with fewer elements than ranks.
spec::ModelSpec toy_model();

/// Who owns the memory and who computes on it; by default the host's stores, and the host at once.
struct ToyMachine {
    std::function<std::unique_ptr<shard::UnitStore>(const shard::Layout&, const shard::Schedule&,
                                                    const comm::Mesh&, const shard::StoreOptions&)>
        make_store{};
    /// Does the work, which touches no other memory of the store, now or later, in order.
    std::function<void(const device::Access&, std::function<void()>)> compute =
        [](const device::Access&, const std::function<void()>& work) { work(); };
    /// The host is about to read.
    std::function<void(const TypedSpan&)> before_reading = [](const TypedSpan&) {};
};

/// A store on toy_model() with everything around it.
class ToyTraining {
  public:
    /// Collective over `ranks`, as everything below.
    ToyTraining(const comm::Group& ranks, const ToySharding& sharding, std::int64_t micro_batches,
                const spec::ModelSpec& model = toy_model(), ToyMachine machine = {});
    /// Nobody frees the arena while others still read.
    ~ToyTraining();

    /// Steps [first, first + count), by the schedule.
    void run(std::int64_t first, std::int64_t count);
    /// Passes of an evaluation.
    void evaluate(std::int64_t passes);
    /// Master parameters in the model's order without padding, on every rank.
    std::vector<float> parameters();

    const shard::Layout& layout() const { return layout_; }
    const shard::Schedule& schedule() const { return schedule_; }
    shard::UnitStore& store() { return *store_; }
    shard::StoreKind kind() const { return kind_; }
    shard::Place place() const { return shard::place_of(mesh_); }
    const shard::StoreOptions& options() const { return options_; }
    const comm::Mesh& mesh() const { return mesh_; }

  private:
    /// What a visit computes: parameters, gradients, and for backward whose and how.
    struct Work {
        struct Part {
            std::size_t stage;
            bool accumulate;
        };
        std::vector<TypedSpan> reads{}, writes{};
        std::vector<Part> parts{};

        void write_gradient(std::size_t part, std::int64_t step, std::int64_t g) const;
    };

    void run_micro_batch(std::int64_t step, std::int64_t g);
    void compute(const Work& work, const char* name, const std::function<void()>& body);
    void update(std::int64_t unit);

    ToyMachine machine_;
    comm::Topology topology_;
    comm::Mesh mesh_;
    shard::Layout layout_;
    shard::Schedule schedule_;
    shard::StoreKind kind_;
    shard::StoreOptions options_;
    std::unique_ptr<shard::UnitStore> store_;
};

/// All parameters after `steps` steps of training.
std::vector<float> train_toy(const comm::Group& ranks, const ToySharding& sharding,
                             std::int64_t steps, std::int64_t micro_batches,
                             const spec::ModelSpec& model = toy_model());

/// The same training by plain loops in one process, without any of shard's code: the oracle.
std::vector<float> train_toy_serially(std::int64_t steps, std::int64_t ranks,
                                      std::int64_t micro_batches, DType compute = DType::kFloat32,
                                      DType reduce = DType::kFloat32,
                                      const spec::ModelSpec& model = toy_model());

}  // namespace fullshard::testing
