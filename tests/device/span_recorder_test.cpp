#include "device/span_recorder.h"

#include "base/clock.h"
#include "base/error.h"
#include "device/checked_device.h"
#include "device/host_device.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace fullshard::device {
namespace {

class Recorder final : public Timeline {
  public:
    bool recording() const override { return on; }
    void add(Span span) override { spans.push_back(std::move(span)); }

    bool on = true;
    std::vector<Span> spans;
};

HostWait ten_seconds() {
    return {.timeout_s = 10};
}

TEST(SpanRecorder, TellsWhenStreamsDidWhatOnTheHostsClock) {
    HostDevice device;
    const auto compute = device.make_stream("compute"), gather = device.make_stream("gather");
    SpanRecorder recorder(device, *compute, [&](const Event& e) { device.wait(e, ten_seconds()); });
    Recorder timeline;
    recorder.show_on(&timeline);
    const double begin = now_seconds();
    {
        const auto outer = recorder.record(
            *gather, Lane::kGather, [] { return "gather of a"; }, /*in_flight=*/true);
        const auto inner = recorder.record(
            *compute, Lane::kCompute, [] { return "forward b"; }, /*in_flight=*/false);
        compute->run({.name = "work"},
                     [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
    }
    timeline.on = false;  // the step is over
    recorder.hand_over();
    const double end = now_seconds();
    ASSERT_EQ(timeline.spans.size(), 2u);
    EXPECT_EQ(timeline.spans[0].what, "gather of a");
    EXPECT_EQ(timeline.spans[0].lane, Lane::kGather);
    EXPECT_TRUE(timeline.spans[0].in_flight);
    EXPECT_EQ(timeline.spans[1].what, "forward b");
    EXPECT_FALSE(timeline.spans[1].in_flight);
    for (const Span& span : timeline.spans) {
        EXPECT_GE(span.end_s - span.begin_s, 0.02) << span.what;
        EXPECT_GE(span.begin_s, begin) << span.what;
        EXPECT_LE(span.end_s, end) << span.what;
    }
}

TEST(SpanRecorder, CostsNothingWhereNobodyRecords) {
    HostDevice device;
    const auto stream = device.make_stream("compute");
    SpanRecorder recorder(device, *stream, [](const Event&) {});
    Recorder timeline;
    timeline.on = false;
    const std::int64_t before = device.created();
    for (Timeline* const shown : std::vector<Timeline*>{nullptr, &timeline}) {
        recorder.show_on(shown);
        const auto span = recorder.record(
            *stream, Lane::kCompute, []() -> std::string { throw LogicError("nobody asks"); },
            /*in_flight=*/false);
    }
    recorder.hand_over();
    EXPECT_EQ(device.created(), before);
    EXPECT_TRUE(timeline.spans.empty());
}

// Whatever order the device does things in; and a second step uses the events of the first.
TEST(SpanRecorder, WaitsForWhatIsStillToBeDone) {
    CheckedDevice device(/*seed=*/3);
    const auto compute = device.make_stream("compute"), gather = device.make_stream("gather");
    SpanRecorder recorder(device, *compute, [&](const Event& e) { device.wait(e, ten_seconds()); });
    Recorder timeline;
    recorder.show_on(&timeline);
    std::int64_t after_first = 0;
    for (int step = 0; step < 3; ++step) {
        for (Stream* const stream : {compute.get(), gather.get()}) {
            const auto span = recorder.record(
                *stream, Lane::kGather, [&] { return stream->name(); }, /*in_flight=*/true);
            stream->run({.name = "work"}, [] {});
        }
        recorder.hand_over();
        if (step == 0) after_first = device.created();
    }
    EXPECT_EQ(timeline.spans.size(), 6u);
    EXPECT_EQ(device.created(), after_first);
    for (const Span& span : timeline.spans) EXPECT_GE(span.end_s, span.begin_s) << span.what;
    device.synchronize(ten_seconds());
}

TEST(SpanRecorder, RefusesToHandOverWhatHasNotEnded) {
    HostDevice device;
    const auto stream = device.make_stream("compute");
    SpanRecorder recorder(device, *stream, [](const Event&) {});
    Recorder timeline;
    recorder.show_on(&timeline);
    const auto span = recorder.record(
        *stream, Lane::kCompute, [] { return "open"; }, /*in_flight=*/false);
    EXPECT_THROW(recorder.hand_over(), LogicError);
}

}  // namespace
}  // namespace fullshard::device
