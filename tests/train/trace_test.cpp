#include "train/trace.h"

#include "device/host_device.h"
#include "train/phases.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>
#include <random>
#include <vector>

namespace fullshard::train {
namespace {

Span compute(double begin, double end) {
    return {Lane::kCompute, "forward", begin, end};
}

Span flight(Lane lane, double begin, double end) {
    return {lane, "bytes", begin, end, /*in_flight=*/true};
}

TEST(Overlap, CountsEachMomentOfCommunicationOnce) {
    // In flight from 0 to 5 and 7 to 8; computing from 1 to 3, 4 to 6 and, twice told, 7 to 7.5.
    const std::vector<Span> spans{flight(Lane::kGather, 0, 3),
                                  flight(Lane::kReduce, 2, 5),
                                  flight(Lane::kGather, 7, 8),
                                  compute(4, 6),
                                  compute(1, 3),
                                  compute(7, 7.5),
                                  compute(7, 7.25)};
    const Overlap overlap = overlap_of(spans);
    EXPECT_DOUBLE_EQ(overlap.in_flight_s, 6);
    EXPECT_DOUBLE_EQ(overlap.hidden_s, 3.5);
    EXPECT_DOUBLE_EQ(*overlap.fraction(), 3.5 / 6);
}

TEST(Overlap, WaitsAndOtherMessagesAreNotInFlight) {
    const std::vector<Span> spans{
        {Lane::kGather, "unshard", 0, 5}, flight(Lane::kOther, 0, 5), compute(0, 5)};
    EXPECT_EQ(overlap_of(spans).fraction(), std::nullopt);
}

TEST(TraceEvents, AreWhatChromeReads) {
    const std::vector<Span> spans{compute(1.5, 2), flight(Lane::kGather, 1, 2.5)};
    const auto events = nlohmann::json::parse(
        "[" +
        trace_events(spans, /*rank=*/3, "node \"7\"", /*clock_offset_s=*/0.75, /*start_s=*/0.25) +
        "]");
    std::map<std::string, std::vector<nlohmann::json>> by_phase;
    for (const auto& event : events) {
        EXPECT_EQ(event["pid"], 3);
        by_phase[event["ph"]].push_back(event);
    }
    EXPECT_EQ(by_phase["M"].size(), 7);  // the process, and six lanes
    EXPECT_EQ(by_phase["M"][0]["args"]["name"], "rank 3 on node \"7\"");
    ASSERT_EQ(by_phase["X"].size(), 1);
    EXPECT_EQ(by_phase["X"][0]["ts"], 0.5e6);
    EXPECT_EQ(by_phase["X"][0]["dur"], 0.5e6);
    ASSERT_EQ(by_phase["b"].size(), 1);
    ASSERT_EQ(by_phase["e"].size(), 1);
    EXPECT_EQ(by_phase["b"][0]["ts"], 0);
    EXPECT_EQ(by_phase["e"][0]["ts"], 1.5e6);
    EXPECT_EQ(by_phase["b"][0]["id"], by_phase["e"][0]["id"]);
}

// Times of a machine that has been up for a day, and another that has not.
TEST(TraceEvents, AreNeverBeforeTheStartByRounding) {
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> begins(81'000, 81'001), offsets(-90'000, 90'000);
    for (int i = 0; i < 200; ++i) {
        const double begin = begins(random), offset = offsets(random);
        const std::vector<Span> spans{compute(begin, begin + 1)};
        const auto events = nlohmann::json::parse(
            "[" + trace_events(spans, /*rank=*/0, "node", offset, /*start_s=*/begin - offset) +
            "]");
        EXPECT_EQ(events.back()["ts"], 0);
    }
}

class Recorder final : public Timeline {
  public:
    bool recording() const override { return on; }
    void add(Span span) override { spans.push_back(std::move(span)); }

    bool on = true;
    std::vector<Span> spans;
};

TEST(PhaseClock, ShowsPhasesWithWhatTheyAreAboutOnATimeline) {
    Recorder recorder;
    PhaseClock clock;
    clock.show_on(&recorder);
    {
        const auto forward = clock.enter(Phase::kForward, "blocks.0");
        const auto unshard = clock.enter(Phase::kUnshard, "blocks.1");
    }
    ASSERT_EQ(recorder.spans.size(), 3);  // forward is cut in two
    EXPECT_EQ(recorder.spans[0].what, "forward blocks.0");
    EXPECT_EQ(recorder.spans[1].what, "unshard blocks.1");
    EXPECT_EQ(recorder.spans[2].what, "forward blocks.0");
    EXPECT_EQ(recorder.spans[0].lane, Lane::kCompute);
    EXPECT_EQ(recorder.spans[1].lane, Lane::kGather);
    EXPECT_EQ(recorder.spans[0].end_s, recorder.spans[1].begin_s);
    recorder.on = false;
    { const auto optimizer = clock.enter(Phase::kOptimizer); }
    EXPECT_EQ(recorder.spans.size(), 3);
}

// The host enqueues while the device computes: each has its own span.
TEST(PhaseClock, ShowsWhatADeviceComputesBesideWhatTheHostEnqueues) {
    device::HostDevice device;
    const auto stream = device.default_stream();
    device::SpanRecorder spans(device, *stream, [](const device::Event&) {});
    Recorder recorder;
    spans.show_on(&recorder);
    PhaseClock clock;
    clock.show_on(&recorder);
    clock.compute_on(device, *stream, spans);
    {
        const auto forward = clock.enter(Phase::kForward, "blocks.0");
        const auto unshard = clock.enter(Phase::kUnshard, "blocks.1");
    }
    { const auto optimizer = clock.enter(Phase::kOptimizer); }
    spans.hand_over();
    std::map<std::string, Lane> lanes;
    for (const Span& span : recorder.spans) lanes[span.what] = span.lane;
    EXPECT_EQ(lanes, (std::map<std::string, Lane>{{"host: forward blocks.0", Lane::kOther},
                                                  {"host: unshard blocks.1", Lane::kOther},
                                                  {"host: optimizer", Lane::kOther},
                                                  {"forward blocks.0", Lane::kCompute},
                                                  {"optimizer", Lane::kOptimizer}}));
}

}  // namespace
}  // namespace fullshard::train
