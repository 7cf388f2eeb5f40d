// What streams did when, for a timeline of the host.
#pragma once

#include "base/timeline.h"
#include "device/device.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fullshard::device {

/// Events before and behind enqueued work tell when the device did it. Nothing is enqueued, and no
/// event made, unless the timeline records. Used by one thread.
class SpanRecorder {
  public:
    using WaitFor = std::function<void(const Event&)>;

    /// `stream` is one that may wait for all others; the device and it outlive the recorder.
    SpanRecorder(Device& device, Stream& stream, WaitFor wait_for);

    /// Null: none. It must outlive its use here.
    void show_on(Timeline* timeline) { timeline_ = timeline; }
    bool recording() const { return timeline_ != nullptr && timeline_->recording(); }

    /// What is enqueued on a stream while it lives is one span.
    class Scope {
      public:
        Scope() = default;
        Scope(Scope&& other) noexcept;
        Scope& operator=(Scope&& other);
        ~Scope();
        void end();

      private:
        friend class SpanRecorder;
        Scope(SpanRecorder& recorder, Stream& stream, std::size_t span)
            : recorder_(&recorder), stream_(&stream), span_(span) {}

        SpanRecorder* recorder_ = nullptr;
        Stream* stream_ = nullptr;
        std::size_t span_ = 0;
    };
    [[nodiscard]] Scope record(Stream& stream, Lane lane, const std::function<std::string()>& what,
                               bool in_flight);

    /// Waits for the device and hands all spans to the timeline, which may have stopped recording;
    /// all scopes have ended. No effect where there are none.
    void hand_over();

  private:
    struct Timed {
        Span span;
        std::unique_ptr<Event> begin, end;
    };
    /// Ties the device's clock to the host's.
    void anchor();
    std::unique_ptr<Event> take_event();

    Device& device_;
    Stream& stream_;
    WaitFor wait_for_;
    Timeline* timeline_ = nullptr;
    std::unique_ptr<Event> anchor_;  ///< null: the clocks are not tied
    double anchor_s_ = 0.0;          ///< when the host saw it reached
    std::vector<Timed> spans_;
    std::int64_t open_ = 0;  ///< scopes
    std::vector<std::unique_ptr<Event>> free_events_;
};

}  // namespace fullshard::device
