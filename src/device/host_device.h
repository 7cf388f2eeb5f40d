// Host memory as a device: every operation is done when its call returns.
#pragma once

#include "device/device.h"

namespace fullshard::device {

/// The reference that other devices are compared with. Events are always reached, and polled
/// operations are polled to their end by the call that enqueues them.
class HostDevice final : public Device {
  public:
    DeviceKind kind() const override { return DeviceKind::kHost; }
    std::string describe() const override { return "host memory"; }
    std::string uuid() const override { return {}; }
    MemoryInfo memory() const override;

    Buffer allocate(std::string_view name, std::int64_t bytes,
                    Placement placement = Placement::kDevice) override;
    std::unique_ptr<Stream> make_stream(std::string name,
                                        Priority priority = Priority::kNormal) override;
    std::unique_ptr<Stream> default_stream() override { return make_stream("compute"); }
    std::unique_ptr<Event> make_event(EventUse use = EventUse::kOrder) override;
    std::int64_t created() const override { return created_; }

    void wait(const Event&, const HostWait&) override {}
    void synchronize(const HostWait&) override {}
    void progress() override {}
    void host_access(const Access&) override {}

  private:
    std::int64_t created_ = 0;
};

}  // namespace fullshard::device
