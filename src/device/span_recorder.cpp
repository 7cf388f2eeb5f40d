#include "device/span_recorder.h"

#include "base/clock.h"
#include "base/error.h"

#include <utility>

namespace fullshard::device {

SpanRecorder::SpanRecorder(Device& device, Stream& stream, WaitFor wait_for)
    : device_(device), stream_(stream), wait_for_(std::move(wait_for)) {}

SpanRecorder::Scope::Scope(Scope&& other) noexcept
    : recorder_(std::exchange(other.recorder_, nullptr)),
      stream_(other.stream_),
      span_(other.span_) {}

SpanRecorder::Scope::~Scope() {
    try {
        end();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the next call of the device fails alike
    }
}

SpanRecorder::Scope& SpanRecorder::Scope::operator=(Scope&& other) {
    if (this == &other) return *this;
    end();
    recorder_ = std::exchange(other.recorder_, nullptr);
    stream_ = other.stream_;
    span_ = other.span_;
    return *this;
}

void SpanRecorder::Scope::end() {
    if (recorder_ == nullptr) return;
    SpanRecorder& recorder = *std::exchange(recorder_, nullptr);
    --recorder.open_;
    stream_->record(*recorder.spans_[span_].end);
}

std::unique_ptr<Event> SpanRecorder::take_event() {
    if (free_events_.empty()) return device_.make_event(EventUse::kTiming);
    std::unique_ptr<Event> event = std::move(free_events_.back());
    free_events_.pop_back();
    return event;
}

void SpanRecorder::anchor() {
    anchor_ = take_event();
    stream_.record(*anchor_);
    wait_for_(*anchor_);
    anchor_s_ = now_seconds();
}

SpanRecorder::Scope SpanRecorder::record(Stream& stream, Lane lane,
                                         const std::function<std::string()>& what, bool in_flight) {
    if (!recording()) return {};
    if (!anchor_) anchor();
    Timed& timed = spans_.emplace_back();
    timed.span = {lane, what(), 0.0, 0.0, in_flight};
    timed.begin = take_event();
    timed.end = take_event();
    stream.record(*timed.begin);
    ++open_;
    return {*this, stream, spans_.size() - 1};
}

void SpanRecorder::hand_over() {
    if (spans_.empty()) return;
    ensure(open_ == 0, "spans are handed over when all have ended");
    for (Timed& timed : spans_) {
        wait_for_(*timed.end);
        timed.span.begin_s = anchor_s_ + timed.begin->seconds_since(*anchor_);
        timed.span.end_s = anchor_s_ + timed.end->seconds_since(*anchor_);
        timeline_->add(std::move(timed.span));
        free_events_.push_back(std::move(timed.begin));
        free_events_.push_back(std::move(timed.end));
    }
    spans_.clear();
    // The clocks drift: the next steps tie them anew.
    free_events_.push_back(std::move(anchor_));
}

}  // namespace fullshard::device
