#include "device/host_device.h"

#include "base/clock.h"
#include "device/host_memory.h"

#include <sched.h>

#include <cstdlib>
#include <cstring>

namespace fullshard::device {

namespace {

class HostEvent final : public Event {
  public:
    bool reached() const override { return true; }
    double seconds_since(const Event& earlier) const override {
        return recorded_s_ - static_cast<const HostEvent&>(earlier).recorded_s_;
    }
    void record() { recorded_s_ = now_seconds(); }

  private:
    double recorded_s_ = 0.0;
};

class HostStream final : public Stream {
  public:
    explicit HostStream(std::string name) : Stream(std::move(name)) {}

    void* native() const override { return nullptr; }
    void record(Event& event) override { static_cast<HostEvent&>(event).record(); }
    void wait(const Event&) override {}

    void copy(TypedSpan from, TypedSpan to) override {
        check_copy(from, to);
        if (from.count != 0)
            std::memcpy(to.data, from.data, static_cast<std::size_t>(from.bytes()));
    }
    void fill(TypedSpan memory, std::byte value) override {
        if (memory.count != 0)
            std::memset(memory.data, std::to_integer<int>(value),
                        static_cast<std::size_t>(memory.bytes()));
    }
    void run(const Access&, std::function<void()> work) override { work(); }
    void run(const Access&, std::unique_ptr<PolledOperation> work) override {
        work->start();
        while (!work->ready()) sched_yield();
    }
};

}  // namespace

MemoryInfo HostDevice::memory() const {
    return host_memory_info();
}

Buffer HostDevice::allocate(std::string_view name, std::int64_t bytes, Placement) {
    ++created_;
    return {{allocate_host(name, bytes, std::byte{0}), std::free}, bytes, DeviceKind::kHost};
}

std::unique_ptr<Stream> HostDevice::make_stream(std::string name, Priority) {
    ++created_;
    return std::make_unique<HostStream>(std::move(name));
}

std::unique_ptr<Event> HostDevice::make_event(EventUse) {
    ++created_;
    return std::make_unique<HostEvent>();
}

}  // namespace fullshard::device
