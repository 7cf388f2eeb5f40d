// A device that NCCL's shim takes for a GPU: host memory, streams that can be told apart, and
// events that the test can hold back.
#pragma once

#include "base/clock.h"
#include "base/error.h"
#include "device/host_device.h"

#include <memory>
#include <string>
#include <utility>

namespace fullshard::testing {

class FakeGpu final : public device::Device {
  public:
    explicit FakeGpu(std::string uuid) : uuid_(std::move(uuid)) {}

    /// Until the next call: no event is reached.
    void hold_events(bool hold) { held_ = hold; }

    DeviceKind kind() const override { return host_.kind(); }
    std::string describe() const override { return "fake GPU"; }
    std::string uuid() const override { return uuid_; }
    device::MemoryInfo memory() const override { return host_.memory(); }
    device::Buffer allocate(std::string_view name, std::int64_t bytes,
                            device::Placement placement) override {
        return host_.allocate(name, bytes, placement);
    }
    std::unique_ptr<device::Stream> make_stream(std::string name, device::Priority) override {
        return std::make_unique<Stream>(host_.make_stream(std::move(name)));
    }
    std::unique_ptr<device::Stream> default_stream() override {
        return make_stream("compute", device::Priority::kNormal);
    }
    std::unique_ptr<device::Event> make_event(device::EventUse) override {
        return std::make_unique<Event>(*this);
    }
    std::int64_t created() const override { return host_.created(); }
    void wait(const device::Event& event, const device::HostWait& how) override {
        const double begin = now_seconds();
        while (!event.reached()) {
            if (how.idle) how.idle();
            if (now_seconds() - begin > how.timeout_s) throw TimeoutError("held back");
        }
    }
    void synchronize(const device::HostWait&) override {}
    void progress() override {}
    void host_access(const device::Access&) override {}

  private:
    class Event final : public device::Event {
      public:
        explicit Event(const FakeGpu& gpu) : gpu_(gpu) {}
        bool reached() const override { return !gpu_.held_; }
        double seconds_since(const device::Event&) const override { return 0.0; }

      private:
        const FakeGpu& gpu_;
    };

    class Stream final : public device::Stream {
      public:
        explicit Stream(std::unique_ptr<device::Stream> host)
            : device::Stream(host->name()), host_(std::move(host)) {}
        void* native() const override { return host_.get(); }
        void record(device::Event&) override {}
        void wait(const device::Event&) override {}
        void copy(TypedSpan from, TypedSpan to) override { host_->copy(from, to); }
        void fill(TypedSpan memory, std::byte value) override { host_->fill(memory, value); }
        void run(const device::Access& access, std::function<void()> work) override {
            host_->run(access, std::move(work));
        }
        void run(const device::Access& access,
                 std::unique_ptr<device::PolledOperation> work) override {
            host_->run(access, std::move(work));
        }

      private:
        std::unique_ptr<device::Stream> host_;
    };

    device::HostDevice host_;
    std::string uuid_;
    bool held_ = false;
};

}  // namespace fullshard::testing
