// Copies between a device's memory and any memory of the host.
#pragma once

#include "base/span.h"
#include "device/device.h"

#include <functional>
#include <memory>

namespace fullshard::device {

/// Copies in a stream's order through pinned memory, which grows to the largest copy and stays.
/// The host waits for each. Used by one thread.
class Staging {
  public:
    using WaitFor = std::function<void(const Event&)>;

    /// The device and the stream outlive it.
    Staging(Device& device, Stream& stream, WaitFor wait_for);

    /// Both of one dtype and length (else LogicError); `to` or `from` is memory of the host that
    /// streams need not know.
    void read(const TypedSpan& from, const TypedSpan& to);
    void write(const TypedSpan& from, const TypedSpan& to);

  private:
    /// Pinned memory like `memory`.
    TypedSpan pinned(const TypedSpan& memory);
    void wait_for_stream();

    Device& device_;
    Stream& stream_;
    WaitFor wait_for_;
    std::unique_ptr<Event> done_;
    Buffer pinned_;
};

}  // namespace fullshard::device
