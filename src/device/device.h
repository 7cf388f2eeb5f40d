// Streams, events and memory of a device, as the sharding code sees them: the same calls on CUDA,
// on the host, and on the checked host device of the tests.
#pragma once

#include "base/span.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace fullshard::device {

class Event;

/// What an operation does to memory. The spans lie in buffers of the stream's device; the texts and
/// lists are needed during the call only. An operation may read and write the same bytes.
struct Access {
    std::string_view name;  ///< of the operation in messages and traces: "all_gather unit 3"
    std::span<const TypedSpan> reads{};
    std::span<const TypedSpan> writes{};
};

/// Work of a host device that takes several looks, such as a collective over MPI. Operations of
/// different streams may start in any order, so what peers match it by (a tag) must be chosen when
/// it is enqueued. Both calls may throw; the error leaves the device's call that found it.
class PolledOperation {
  public:
    virtual ~PolledOperation() = default;
    /// Called once, when everything that the operation was ordered after is done.
    virtual void start() = 0;
    /// Advances without waiting; true when its writes are readable. Called until it is true.
    virtual bool ready() = 0;
};

/// How the host waits for a device: never without an end, and never blind to its peers.
struct HostWait {
    double timeout_s = 0.0;  ///< after which TimeoutError is thrown
    std::function<void()>
        idle{};  ///< called between two looks: lets MPI advance, throws NCCL's errors
};

/// An ordered queue of operations. All calls return before the operation is done (a host device may
/// have done it) and happen on one thread. A steady step creates nothing: events are made once.
class Stream {
  public:
    virtual ~Stream() = default;
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    const std::string& name() const { return name_; }
    /// The cudaStream_t; null on host devices.
    virtual void* native() const = 0;

    /// Marks the end of what was enqueued so far. What an earlier record marked is forgotten; who
    /// waits for it already is not affected.
    virtual void record(Event& event) = 0;
    /// What is enqueued from here on starts after what `event` marks at this moment; nothing where
    /// it was never recorded.
    virtual void wait(const Event& event) = 0;

    /// Both of one dtype and length (else LogicError); they may not overlap. Host memory must be
    /// pinned (Placement::kPinnedHost): the copy from other memory would hold up the host.
    virtual void copy(TypedSpan from, TypedSpan to) = 0;
    /// Sets every byte.
    virtual void fill(TypedSpan memory, std::byte value) = 0;
    void zero(TypedSpan memory) { fill(memory, std::byte{0}); }

    /// Enqueues work that the host computes: the CPU twin of a kernel. `work` is copied and touches
    /// no other memory of the device than it declares. LogicError on a CUDA stream.
    virtual void run(const Access& access, std::function<void()> work) = 0;
    virtual void run(const Access& access, std::unique_ptr<PolledOperation> work) = 0;

  protected:
    explicit Stream(std::string name) : name_(std::move(name)) {}

  private:
    std::string name_;
};

/// A point in a stream. Reusable: each record replaces the one before.
class Event {
  public:
    virtual ~Event() = default;
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    /// Whether all that it marks is done; true where it was never recorded. Once it is true, the
    /// host may touch what the marked operations wrote.
    virtual bool reached() const = 0;
    /// Seconds on the device from `earlier` to this one. Both were made for timing and are reached.
    virtual double seconds_since(const Event& earlier) const = 0;

  protected:
    Event() = default;
};

/// Owns memory of a device, aligned to 256 bytes. It must not outlive its device, nor be freed
/// while an operation may still use it.
class Buffer {
  public:
    using Memory = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;

    Buffer() = default;
    Buffer(Memory memory, std::int64_t bytes, DeviceKind kind)
        : memory_(std::move(memory)), bytes_(bytes), kind_(kind) {}

    std::byte* data() const { return memory_.get(); }
    std::int64_t bytes() const { return bytes_; }
    /// All of it as elements of `dtype`; what is left at the end is left out.
    TypedSpan typed(DType dtype) const {
        TypedSpan all;
        all.data = data();
        all.count = bytes_ / size_of(dtype);
        all.dtype = dtype;
        all.device = kind_;
        return all;
    }

  private:
    Memory memory_;
    std::int64_t bytes_ = 0;
    DeviceKind kind_ = DeviceKind::kHost;
};

enum class Placement : std::uint8_t {
    kDevice,
    kPinnedHost,  ///< host memory that streams may copy from and to without holding up the host
};

/// Work of a stream with high priority starts first where both could.
enum class Priority : std::uint8_t { kNormal, kHigh };

enum class EventUse : std::uint8_t { kOrder, kTiming };

struct MemoryInfo {
    std::int64_t total_bytes = 0;
    std::int64_t free_bytes = 0;  ///< of all processes together
};

/// One device, used by one thread. Streams, events and buffers must not outlive it. Errors of a
/// library are RunError with rank, host and call.
class Device {
  public:
    virtual ~Device() = default;
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    /// The address space of its buffers.
    virtual DeviceKind kind() const = 0;
    /// "NVIDIA H200 (compute capability 9.0, 140 GiB, driver 13.0)" or "host memory".
    virtual std::string describe() const = 0;
    /// "GPU-5f1c..." as nvidia-smi has it: equal where two ranks share a GPU. Empty on the host.
    virtual std::string uuid() const = 0;
    virtual MemoryInfo memory() const = 0;

    /// `name` is for messages. The content is arbitrary. Throws RunError when the memory is short,
    /// naming what there is. Zero bytes are legal.
    virtual Buffer allocate(std::string_view name, std::int64_t bytes,
                            Placement placement = Placement::kDevice) = 0;
    virtual std::unique_ptr<Stream> make_stream(std::string name,
                                                Priority priority = Priority::kNormal) = 0;
    /// The stream that LibTorch computes on: CUDA's default one. Others do not wait for it.
    virtual std::unique_ptr<Stream> default_stream() = 0;
    virtual std::unique_ptr<Event> make_event(EventUse use = EventUse::kOrder) = 0;
    /// Buffers, streams and events made so far: a steady step does not change it.
    virtual std::int64_t created() const = 0;

    /// The host waits until the event is reached.
    virtual void wait(const Event& event, const HostWait& how) = 0;
    /// The host waits for all that was enqueued on all streams.
    virtual void synchronize(const HostWait& how) = 0;
    /// Lets queued work of the host advance, without waiting. To be called where the host waits for
    /// anything else, such as a message over MPI. No effect on CUDA, whose work advances alone.
    virtual void progress() = 0;

    /// Nested names of what the host enqueues from here on, for profilers (NVTX). `name` ends with
    /// a zero byte.
    virtual void push_range(std::string_view /*name*/) {}
    virtual void pop_range() {}

    /// To be called before the host itself reads or writes memory that streams use (pinned memory,
    /// or any on a host device). A checking device throws LogicError where no wait of the host
    /// orders it; no effect elsewhere.
    virtual void host_access(const Access& access) = 0;

  protected:
    Device() = default;
};

}  // namespace fullshard::device
