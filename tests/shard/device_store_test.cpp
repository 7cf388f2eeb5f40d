// The store on devices, over the schedule of the host's stores: the bits of a host store, and no
// missing edge between streams whatever their order.
#include "shard/device_store.h"

#include "base/error.h"
#include "comm/mpi_stream_communicator.h"
#include "device/checked_device.h"
#include "device/host_device.h"
#include "kernels/host_stream_kernels.h"
#include "shard/toy_training.h"
#include "support/mpi_world.h"
#include "support/store_reading.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fullshard::shard {
namespace {

using fullshard::testing::same_bits;
using fullshard::testing::toy_model;
using fullshard::testing::ToyMachine;
using fullshard::testing::ToySharding;
using fullshard::testing::ToyTraining;
using fullshard::testing::train_toy;
using fullshard::testing::world;

constexpr std::int64_t kSteps = 3;

/// A training on a device whose streams the host computes.
class DeviceTraining {
  public:
    DeviceTraining(const comm::Group& ranks, std::unique_ptr<device::Device> on,
                   const ToySharding& sharding, std::int64_t micro_batches)
        : device_(std::move(on)),
          compute_(device_->make_stream("compute")),
          staging_(*device_, *compute_,
                   [this](const device::Event& event) { mesh_->wait(*device_, event); }),
          spans_(*device_, *compute_,
                 [this](const device::Event& event) { mesh_->wait(*device_, event); }) {
        ToyMachine machine;
        machine.make_store = [&](const Layout& layout, const Schedule& schedule,
                                 const comm::Mesh& mesh, const StoreOptions& options) {
            mesh_.emplace(ranks, mesh.shard_group, mesh.replicas, progress_);
            return std::make_unique<DeviceStore>(
                layout, schedule, options,
                DeviceStore::Means{*device_, *compute_, kernels_, *mesh_, staging_, spans_});
        };
        machine.compute = [this](const device::Access& access, std::function<void()> work) {
            compute_->run(access, std::move(work));
        };
        machine.before_reading = [this](const TypedSpan& memory) {
            synchronize();
            device_->host_access({.name = "test", .reads = {&memory, 1}});
        };
        toy_ = std::make_unique<ToyTraining>(ranks, sharding, micro_batches, toy_model(), machine);
    }

    ToyTraining& toy() { return *toy_; }
    /// The host reads something after each step, as a trainer does the loss and the norm.
    void run(std::int64_t steps) {
        for (std::int64_t step = 0; step < steps; ++step) {
            toy_->run(step, 1);
            synchronize();
        }
    }
    void evaluate() {
        toy_->evaluate(1);
        synchronize();
    }
    device::Device& device() { return *device_; }
    device::SpanRecorder& spans() { return spans_; }

  private:
    void synchronize() {
        device_->synchronize({.timeout_s = 60, .idle = [this] { progress_.advance(); }});
    }

    std::unique_ptr<device::Device> device_;
    std::unique_ptr<device::Stream> compute_;
    device::Staging staging_;
    device::SpanRecorder spans_;
    kernels::HostKernels kernels_;
    comm::Progress progress_;
    std::optional<comm::MpiStreamMesh> mesh_;
    std::unique_ptr<ToyTraining> toy_;  ///< last: its store uses what is above
};

ToySharding fast(ToySharding sharding) {
    sharding.order = SumOrder::kFast;
    return sharding;
}

/// Everything that a device's store can be asked for.
std::vector<ToySharding> shardings(int ranks) {
    using Backward = Prefetch::Backward;
    std::vector<ToySharding> list{
        {},
        {.strategy = "zero1"},
        {.strategy = "shard_grad_op"},
        {.wrap = {WrapPolicy::kModel}},
        {.wrap = {WrapPolicy::kSize, 500}},
        {.prefetch = {false, Backward::kOff}, .slots = 1},
        {.prefetch = {false, Backward::kPost, 1}},
        {.prefetch = {true, Backward::kPre, 2}, .slots = 3},
        {.reshard_after_forward = false},
        {.accumulation = Accumulation::kUnsharded},
        {.compute = DType::kBFloat16, .reduce = DType::kBFloat16},
        {.compute = DType::kFloat16, .reduce = DType::kFloat16},
    };
    for (int group = 1; group < ranks; ++group) {
        if (ranks % group == 0) list.push_back({.group_size = group});
    }
    for (ToySharding& sharding : list) sharding = fast(sharding);
    return list;
}

/// The host's store that sums in the same order: ranks by one tree, micro-batches as they come.
ToySharding on_host(ToySharding sharding) {
    sharding.store = StorePreference::kSlotted;
    sharding.node_shared = false;
    return sharding;
}

TEST(DeviceStore, HasTheBitsOfTheHostsStore) {
    for (const std::int64_t micro_batches : {1, 3}) {
        for (const ToySharding& sharding : shardings(world().size())) {
            DeviceTraining training(world(), std::make_unique<device::HostDevice>(), sharding,
                                    micro_batches);
            training.toy().run(0, kSteps);
            EXPECT_TRUE(same_bits(training.toy().parameters(),
                                  train_toy(world(), on_host(sharding), kSteps, micro_batches)))
                << sharding.describe() << ", " << micro_batches << " micro-batches";
        }
    }
}

TEST(DeviceStore, AnyOrderThatTheEventsAllowGivesThoseBits) {
    for (ToySharding sharding : shardings(world().size())) {
        const std::vector<float> expected = train_toy(world(), on_host(sharding), kSteps, 2);
        for (const bool poison : {false, true}) {
            sharding.faults.poison = poison;
            for (const std::uint64_t seed : {1, 2, 3}) {
                DeviceTraining training(world(), std::make_unique<device::CheckedDevice>(seed),
                                        sharding, 2);
                training.evaluate();
                training.run(kSteps);
                training.evaluate();
                EXPECT_TRUE(same_bits(training.toy().parameters(), expected))
                    << sharding.describe() << ", seed " << seed;
            }
        }
    }
}

// Each on one rank of its own: the others need not wait for an error.
TEST(DeviceStore, EveryEdgeBetweenStreamsIsNeeded) {
    const comm::Group alone = comm::Group::self(60);
    const auto waits_of = [&](std::optional<std::int64_t> broken, bool& found) {
        auto checked = std::make_unique<device::CheckedDevice>(7);
        device::CheckedDevice& device = *checked;
        if (broken) device.break_wait(*broken);
        found = false;
        try {
            DeviceTraining training(alone, std::move(checked), fast({}), 2);
            training.toy().run(0, 2);
            training.toy().parameters();
            return device.waits();
        } catch (const LogicError& error) {
            found = std::string(error.what()).find("wait") != std::string::npos;
            EXPECT_TRUE(found) << error.what();
            return std::vector<std::string>{};
        }
    };
    bool found = false;
    const std::vector<std::string> waits = waits_of(std::nullopt, found);
    ASSERT_FALSE(found);
    ASSERT_GT(waits.size(), 100u);
    std::map<std::string, int> broken, noticed;
    for (std::size_t i = 0; i < waits.size(); ++i) {
        waits_of(static_cast<std::int64_t>(i), found);
        ++broken[waits[i]];
        noticed[waits[i]] += found;
    }
    for (const auto& [edge, count] : broken) {
        if (edge.ends_with("for nothing")) continue;  // the first use of a slot
        // Some waits of a kind are implied by others.
        EXPECT_GT(noticed[edge], 0) << edge << ", " << count << " times";
    }
}

TEST(DeviceStore, SteadyStepsCreateNothing) {
    for (const ToySharding& sharding : shardings(world().size())) {
        DeviceTraining training(world(), std::make_unique<device::HostDevice>(), sharding, 2);
        training.toy().run(0, 1);
        const std::int64_t before = training.device().created();
        training.toy().run(1, 2);
        EXPECT_EQ(training.device().created(), before) << sharding.describe();
    }
}

TEST(DeviceStore, MemoryAndTrafficAreThoseOfThePlan) {
    for (ToySharding sharding : shardings(world().size())) {
        for (const DType reduce : {sharding.reduce, DType::kFloat32}) {
            sharding.reduce = reduce;
            DeviceTraining training(world(), std::make_unique<device::HostDevice>(), sharding, 3);
            ToyTraining& toy = training.toy();
            EXPECT_EQ(toy.store().allocations(),
                      plan_memory(StoreKind::kDevice, toy.layout(), toy.schedule(), toy.place(),
                                  toy.options()))
                << sharding.describe();
            toy.evaluate(2);
            toy.run(0, 2);
            toy.evaluate(1);
            EXPECT_EQ(toy.store().traffic(),
                      plan_traffic(StoreKind::kDevice, toy.layout(), toy.schedule(), toy.place(),
                                   toy.options(), {.steps = 2, .evaluations = 3, .versions = 3}))
                << sharding.describe();
        }
    }
}

class Recorder final : public Timeline {
  public:
    bool recording() const override { return true; }
    void add(Span span) override { spans.push_back(std::move(span)); }

    std::vector<Span> spans;
};

TEST(DeviceStore, ShowsEachGatherAndReductionInFlight) {
    Recorder timeline;
    DeviceTraining training(world(), std::make_unique<device::CheckedDevice>(5), fast({}), 2);
    training.spans().show_on(&timeline);
    training.run(1);
    training.spans().hand_over();
    std::int64_t gathers = 0, reductions = 0, learning = 0;
    for (const Span& span : timeline.spans) {
        EXPECT_TRUE(span.in_flight);
        EXPECT_LE(span.begin_s, span.end_s);
        gathers += span.lane == Lane::kGather && span.what.starts_with("gather of ");
        reductions += span.lane == Lane::kReduce && span.what.starts_with("reduction of ");
    }
    for (const Unit& unit : training.toy().layout().units) learning += unit.trainable();
    EXPECT_EQ(reductions, 2 * learning);
    EXPECT_EQ(gathers + reductions, std::ssize(timeline.spans));
    EXPECT_GT(gathers, 0);
}

TEST(DeviceStore, RefusesWhatADeviceCannotDo) {
    const auto made_with = [](const ToySharding& sharding) {
        DeviceTraining training(world(), std::make_unique<device::HostDevice>(), sharding, 1);
    };
    EXPECT_THROW(made_with({}), LogicError);  // the tree over micro-batches
    EXPECT_THROW(made_with(fast({.regather_ranks = 2})), LogicError);
}

}  // namespace
}  // namespace fullshard::shard
