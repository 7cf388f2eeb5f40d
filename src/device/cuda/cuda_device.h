// A CUDA device behind the interface of device.h.
#pragma once

#include "device/device.h"

#include <string>
#include <vector>

namespace fullshard::device {

class CudaStream;

class CudaDevice final : public Device {
  public:
    /// See CudaDevices::open.
    CudaDevice(int number, std::string process);

    DeviceKind kind() const override { return DeviceKind::kCuda; }
    std::string describe() const override { return description_; }
    std::string uuid() const override { return uuid_; }
    MemoryInfo memory() const override;

    /// Waits for the device, so it belongs before the first step.
    Buffer allocate(std::string_view name, std::int64_t bytes,
                    Placement placement = Placement::kDevice) override;
    std::unique_ptr<Stream> make_stream(std::string name,
                                        Priority priority = Priority::kNormal) override;
    std::unique_ptr<Stream> default_stream() override;
    std::unique_ptr<Event> make_event(EventUse use = EventUse::kOrder) override;
    std::int64_t created() const override { return created_; }

    void wait(const Event& event, const HostWait& how) override;
    void synchronize(const HostWait& how) override;
    void progress() override {}
    void host_access(const Access&) override {}
    void push_range(std::string_view name) override;
    void pop_range() override;

  private:
    friend class CudaStream;

    std::string process_;
    std::string description_;
    std::string uuid_;
    std::vector<CudaStream*> streams_;  ///< those alive
    std::int64_t created_ = 0;
};

}  // namespace fullshard::device
