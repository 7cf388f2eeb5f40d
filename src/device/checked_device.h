// A device for tests: host memory, operations in random order, and a checker of their accesses.
#pragma once

#include "device/device.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fullshard::device {

/// Single-threaded and deterministic by its seed. Operations run later than they are enqueued, in
/// an order that the seed draws from those that streams and events allow. On top of it every
/// declared access is checked against the order that events and waits of the host enforce
/// (access_checker.h): a missing edge is a LogicError at the call that enqueues the access,
/// whatever the seed. It names both operations, their streams, the bytes and the missing wait.
///
/// Memory is filled with NaN when it is allocated and when it is freed, and its addresses are never
/// used again. Freeing a buffer that an operation may still use is a violation that the next call
/// throws. All memory that operations touch must be buffers of this device.
class CheckedDevice final : public Device {
  public:
    explicit CheckedDevice(std::uint64_t seed);
    ~CheckedDevice() override;

    DeviceKind kind() const override { return DeviceKind::kHost; }
    std::string describe() const override;
    std::string uuid() const override { return {}; }
    MemoryInfo memory() const override;

    Buffer allocate(std::string_view name, std::int64_t bytes,
                    Placement placement = Placement::kDevice) override;
    std::unique_ptr<Stream> make_stream(std::string name,
                                        Priority priority = Priority::kNormal) override;
    std::unique_ptr<Stream> default_stream() override { return make_stream("compute"); }
    std::unique_ptr<Event> make_event(EventUse use = EventUse::kOrder) override;
    std::int64_t created() const override;

    void wait(const Event& event, const HostWait& how) override;
    void synchronize(const HostWait& how) override;
    void progress() override;
    void host_access(const Access& access) override;

    /// The waits for events so far, those of streams and those of the host, each as
    /// "stream 'compute' for stream 'gather'".
    const std::vector<std::string>& waits() const;
    /// Breaks an edge on purpose: the wait with this number (its place in waits()) will have no
    /// effect. To be called before it.
    void break_wait(std::int64_t number);
    /// Names of the operations in the order in which they ran.
    const std::vector<std::string>& executed() const;

    class State;  ///< shared with streams, events and buffers

  private:
    std::uint64_t seed_;
    std::shared_ptr<State> state_;
};

}  // namespace fullshard::device
