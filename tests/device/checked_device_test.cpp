// What the checked device refuses, and that what it refuses is what the rules of device.h forbid.
#include "device/checked_device.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace fullshard::device {
namespace {

const HostWait kPatient{.timeout_s = 10.0};

/// A device with two streams, an event and a buffer of 8 floats.
struct Bench {
    explicit Bench(std::uint64_t seed = 1) : device(seed) {}

    void run(Stream& stream, const char* name, std::vector<TypedSpan> reads,
             std::vector<TypedSpan> writes) {
        stream.run({name, reads, writes}, [] {});
    }
    void writes(Stream& stream, TypedSpan span) { run(stream, "writer", {}, {span}); }
    void reads(Stream& stream, TypedSpan span) { run(stream, "reader", {span}, {}); }

    CheckedDevice device;
    std::unique_ptr<Stream> compute = device.make_stream("compute");
    std::unique_ptr<Stream> gather = device.make_stream("gather");
    std::unique_ptr<Event> event = device.make_event();
    Buffer slot = device.allocate("slot 0", 8 * 4);
    TypedSpan all = slot.typed(DType::kFloat32);
};

/// Expects that `call` is refused with a message that has all the parts.
template <typename Call>
void expect_refused(Call&& call, const std::vector<std::string>& parts) {
    try {
        call();
        ADD_FAILURE() << "not refused";
    } catch (const LogicError& error) {
        const std::string text = error.what();
        for (const std::string& part : parts)
            EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
    }
}

TEST(AccessChecker, UseBeforeReadyNamesBothSidesTheBytesAndTheEdge) {
    Bench bench;
    bench.run(*bench.gather, "all_gather unit 3", {}, {bench.all.part(0, 6)});
    expect_refused([&] { bench.run(*bench.compute, "forward", {bench.all.part(4, 4)}, {}); },
                   {"use before ready",
                    "operation 'forward' on stream 'compute' reads bytes "
                    "[16, 24) of buffer 'slot 0'",
                    "operation 'all_gather unit 3' on stream 'gather', which writes them",
                    "Missing: stream 'compute' waits for an event that stream 'gather' records "
                    "after 'all_gather unit 3'"});
    expect_refused([&] { bench.writes(*bench.compute, bench.all); }, {"use before ready"});
    expect_refused(
        [&] {
            bench.device.host_access({"check", {&bench.all, 1}, {}});
        },
        {"use before ready", "Missing: the host waits for an event that stream 'gather'"});
}

TEST(AccessChecker, ReuseBeforeDone) {
    Bench bench;
    bench.reads(*bench.compute, bench.all.part(2, 2));
    bench.writes(*bench.gather, bench.all.part(0, 2));  // other bytes
    bench.reads(*bench.gather, bench.all.part(2, 2));   // two readers need no order
    expect_refused([&] { bench.writes(*bench.gather, bench.all.part(3, 5)); },
                   {"reuse before done", "'writer' on stream 'gather' writes bytes [12, 16)",
                    "operation 'reader' on stream 'compute', which reads them"});
    expect_refused(
        [&] {
            bench.device.host_access({"fill", {}, {&bench.all, 1}});
        },
        {"use before ready"});  // of the write to other bytes
}

TEST(AccessChecker, AnEventOrders) {
    Bench bench;
    bench.writes(*bench.gather, bench.all);
    bench.gather->record(*bench.event);
    bench.compute->wait(*bench.event);
    bench.run(*bench.compute, "in place", {bench.all}, {bench.all});
    expect_refused([&] { bench.writes(*bench.gather, bench.all); }, {"use before ready"});
    bench.compute->record(*bench.event);
    expect_refused([&] { bench.writes(*bench.gather, bench.all); }, {"use before ready"});
    bench.gather->wait(*bench.event);
    bench.writes(*bench.gather, bench.all);
}

TEST(AccessChecker, AWaitIsForWhatWasRecordedBeforeIt) {
    Bench bench;
    bench.compute->wait(*bench.event);  // never recorded: nothing to wait for
    bench.writes(*bench.gather, bench.all.part(0, 4));
    bench.gather->record(*bench.event);
    bench.writes(*bench.gather, bench.all.part(4, 4));
    bench.compute->wait(*bench.event);
    bench.gather->record(*bench.event);  // later than the wait
    bench.reads(*bench.compute, bench.all.part(0, 4));
    expect_refused([&] { bench.reads(*bench.compute, bench.all); }, {"bytes [16, 32)"});
}

TEST(AccessChecker, TheHostOrdersWhatItWaitedForAndWhatItDid) {
    Bench bench;
    bench.writes(*bench.gather, bench.all);
    bench.gather->record(*bench.event);
    bench.device.wait(*bench.event, kPatient);
    bench.device.host_access({"look", {&bench.all, 1}, {&bench.all, 1}});
    bench.run(*bench.compute, "in place", {bench.all}, {bench.all});
    bench.compute->record(*bench.event);
    while (!bench.event->reached()) {
    }
    bench.device.host_access({"look", {&bench.all, 1}, {&bench.all, 1}});
    bench.writes(*bench.gather, bench.all);
    bench.device.synchronize(kPatient);
    bench.writes(*bench.compute, bench.all);
}

TEST(AccessChecker, MemoryThatIsNoBuffer) {
    Bench bench;
    std::array<float, 2> other{};
    expect_refused([&] { bench.reads(*bench.compute, TypedSpan(std::span<float>(other))); },
                   {"in no buffer of this device"});
    expect_refused([&] { bench.reads(*bench.compute, bench.all.part(4, 5)); },
                   {"over the end of buffer 'slot 0' of 32 bytes"});
    bench.slot = Buffer();
    expect_refused([&] { bench.reads(*bench.compute, bench.all); },
                   {"in buffer 'slot 0', which is freed"});
    bench.reads(*bench.compute, bench.all.part(0, 0));  // touches nothing
}

TEST(AccessChecker, FreeingWhatIsInUseIsTold) {
    Bench bench;
    bench.reads(*bench.compute, bench.all);
    bench.slot = Buffer();
    expect_refused([&] { bench.device.synchronize(kPatient); },
                   {"reuse before done: the host frees buffer 'slot 0'", "'reader'"});
    bench.device.synchronize(kPatient);  // told once
}

TEST(CheckedDevice, MemoryIsNan) {
    Bench bench;
    const std::span<const float> values = bench.all.as<float>();
    for (const float value : values) EXPECT_TRUE(std::isnan(value));
    bench.compute->zero(bench.all);
    bench.device.synchronize(kPatient);
    for (const float value : values) EXPECT_EQ(value, 0.0F);
    bench.slot = Buffer();
    for (const float value : values) EXPECT_TRUE(std::isnan(value));
}

/// Two slots that units pass through: gathered on one stream, used on another, as a store does it.
/// Each of its waits is needed.
void run_pipeline(CheckedDevice& device, std::vector<float>& sums) {
    constexpr int kUnits = 6;
    const auto gather = device.make_stream("gather");
    const auto compute = device.make_stream("compute");
    std::array<Buffer, 2> slots{device.allocate("slot 0", 4), device.allocate("slot 1", 4)};
    const Buffer total = device.allocate("total", 4, Placement::kPinnedHost);
    std::array<std::unique_ptr<Event>, 2> ready{device.make_event(), device.make_event()};
    std::array<std::unique_ptr<Event>, 2> done{device.make_event(), device.make_event()};
    const TypedSpan sum = total.typed(DType::kFloat32);
    compute->zero(sum);
    for (int unit = 0; unit < kUnits; ++unit) {
        const auto at = static_cast<std::size_t>(unit % 2);
        const TypedSpan slot = slots[at].typed(DType::kFloat32);
        if (unit >= 2) gather->wait(*done[at]);
        gather->run({"gather", {}, {&slot, 1}},
                    [slot, unit] { slot.as<float>()[0] = static_cast<float>(1 << unit); });
        gather->record(*ready[at]);
        compute->wait(*ready[at]);
        const std::array inputs{slot, sum};
        compute->run({"use", inputs, {&sum, 1}},
                     [slot, sum] { sum.as<float>()[0] += slot.as<float>()[0]; });
        compute->record(*done[at]);
    }
    device.wait(*done[(kUnits - 1) % 2], kPatient);
    device.host_access({"read", {&sum, 1}, {}});
    sums.push_back(sum.as<float>()[0]);
}

TEST(CheckedDevice, ALegalScheduleGivesItsResultWithEverySeedAndOrdersDiffer) {
    std::set<std::vector<std::string>> orders;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        CheckedDevice device(seed);
        std::vector<float> sums;
        run_pipeline(device, sums);
        EXPECT_EQ(sums, std::vector<float>{63.0F});
        orders.insert(device.executed());
    }
    EXPECT_GT(orders.size(), 5U);
}

TEST(CheckedDevice, EveryBrokenWaitIsFoundWithEverySeed) {
    std::vector<float> sums;
    CheckedDevice whole(0);
    run_pipeline(whole, sums);
    const auto waits = static_cast<std::int64_t>(whole.waits().size());
    ASSERT_EQ(waits, 6 + 4 + 1);
    for (std::uint64_t seed = 0; seed < 20; ++seed)
        for (std::int64_t broken = 0; broken < waits; ++broken) {
            CheckedDevice device(seed);
            device.break_wait(broken);
            EXPECT_THROW(run_pipeline(device, sums), LogicError)
                << "wait " << broken << ": " << whole.waits()[static_cast<std::size_t>(broken)];
        }
}

TEST(CheckedDevice, BrokenWaitsArePlanned) {
    Bench bench;
    bench.compute->wait(*bench.event);
    EXPECT_EQ(bench.device.waits(), std::vector<std::string>{"stream 'compute' for nothing"});
    EXPECT_THROW(bench.device.break_wait(0), LogicError);
}

/// The order in which eight operations of two independent streams run.
std::vector<std::string> free_order(std::uint64_t seed) {
    Bench bench(seed);
    for (const char* name : {"a1", "a2", "a3", "a4"}) bench.run(*bench.compute, name, {}, {});
    for (const char* name : {"b1", "b2", "b3", "b4"}) bench.run(*bench.gather, name, {}, {});
    bench.device.synchronize(kPatient);
    return bench.device.executed();
}

TEST(CheckedDevice, OrdersOfIndependentStreamsAreRandomAndRepeatable) {
    std::set<std::vector<std::string>> orders;
    int later_stream_first = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        const std::vector<std::string> order = free_order(seed);
        EXPECT_EQ(order, free_order(seed));
        later_stream_first += order.front() == "b1" ? 1 : 0;
        orders.insert(order);
    }
    // There are 70 orders; those that the order of the calls makes likely come often.
    EXPECT_GT(orders.size(), 35U);
    EXPECT_GT(later_stream_first, 10);
}

/// Ready at the third look.
class SlowOperation final : public PolledOperation {
  public:
    SlowOperation(int& started, int looks) : started_(started), looks_(looks) {}
    void start() override { ++started_; }
    bool ready() override { return --looks_ <= 0; }

  private:
    int& started_;
    int looks_;
};

TEST(CheckedDevice, PolledOperationsHoldUpTheirStreamOnly) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        Bench bench(seed);
        int started = 0;
        bool after = false;
        bool beside = false;
        const Access none{"slow"};
        bench.gather->run(
            none, std::make_unique<SlowOperation>(started, std::numeric_limits<int>::max()));
        bench.gather->run({"after"}, [&] { after = true; });
        bench.compute->run({"beside"}, [&] { beside = true; });
        bench.compute->record(*bench.event);
        bench.device.wait(*bench.event, kPatient);
        EXPECT_TRUE(beside);
        int looks = 0;
        const HostWait brief{.timeout_s = 0.001, .idle = [&] { ++looks; }};
        EXPECT_THROW(bench.device.synchronize(brief), TimeoutError);
        EXPECT_GT(looks, 0);
        EXPECT_EQ(started, 1);
        EXPECT_FALSE(after);
    }
    Bench bench;
    int started = 0;
    bool after = false;
    bench.gather->run({"slow"}, std::make_unique<SlowOperation>(started, 3));
    bench.gather->run({"after"}, [&] { after = true; });
    for (int i = 0; i < 20; ++i) bench.device.progress();
    EXPECT_TRUE(after);
}

TEST(CheckedDevice, AnErrorOfAnOperationEndsTheUseOfTheDevice) {
    Bench bench;
    const auto enqueue_and_wait = [&] {
        bench.gather->run({"send"}, [] { throw CommunicationError("rank 1 is gone"); });
        bench.device.synchronize(kPatient);
    };
    EXPECT_THROW(enqueue_and_wait(), CommunicationError);
    EXPECT_THROW(bench.writes(*bench.compute, bench.all), CommunicationError);
    EXPECT_THROW(bench.device.progress(), CommunicationError);
}

TEST(CheckedDevice, TimesOfEventsFollowTheStream) {
    Bench bench;
    const auto begin = bench.device.make_event(EventUse::kTiming);
    const auto end = bench.device.make_event(EventUse::kTiming);
    bench.compute->record(*begin);
    bench.writes(*bench.compute, bench.all);
    bench.compute->record(*end);
    bench.device.synchronize(kPatient);
    EXPECT_GE(end->seconds_since(*begin), 0.0);
    EXPECT_THROW(end->seconds_since(*bench.event), LogicError);
    EXPECT_EQ(bench.device.created(), 6);
}

}  // namespace
}  // namespace fullshard::device
