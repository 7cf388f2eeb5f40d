// The host as a device: at once, on the calling thread.
#include "device/host_device.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>

namespace fullshard::device {
namespace {

class Countdown final : public PolledOperation {
  public:
    explicit Countdown(int& left) : left_(left) {}
    void start() override { left_ = 3; }
    bool ready() override { return --left_ == 0; }

  private:
    int& left_;
};

TEST(HostDevice, DoesEverythingAtOnce) {
    HostDevice device;
    const Buffer from = device.allocate("from", 12);
    const Buffer to = device.allocate("to", 12);
    EXPECT_EQ(std::bit_cast<std::uintptr_t>(from.data()) % 256, 0U);
    const auto stream = device.make_stream("stream");
    const auto event = device.make_event();
    EXPECT_TRUE(event->reached());
    stream->fill(from.typed(DType::kFloat32), std::byte{1});
    stream->copy(from.typed(DType::kFloat32), to.typed(DType::kFloat32));
    EXPECT_EQ(to.typed(DType::kInt64).as<std::int64_t>()[0], 0x0101010101010101);
    stream->zero(to.typed(DType::kFloat32));
    EXPECT_EQ(to.typed(DType::kInt64).as<std::int64_t>()[0], 0);
    int left = -1;
    stream->run({"countdown"}, std::make_unique<Countdown>(left));
    EXPECT_EQ(left, 0);
    bool ran = false;
    stream->run({"work"}, [&] { ran = true; });
    EXPECT_TRUE(ran);
    stream->record(*event);
    EXPECT_TRUE(event->reached());
    EXPECT_EQ(stream->native(), nullptr);
    EXPECT_EQ(device.created(), 4);
    EXPECT_GT(device.memory().total_bytes, device.memory().free_bytes);
}

TEST(HostDevice, RefusesWrongCopiesAndImpossibleBuffers) {
    HostDevice device;
    const Buffer buffer = device.allocate("buffer", 64);
    const auto stream = device.make_stream("stream");
    const TypedSpan all = buffer.typed(DType::kFloat32);
    EXPECT_THROW(stream->copy(all.part(0, 2), all.part(4, 3)), LogicError);
    EXPECT_THROW(stream->copy(all.part(0, 2), buffer.typed(DType::kBFloat16).part(8, 2)),
                 LogicError);
    EXPECT_THROW(stream->copy(all.part(0, 4), all.part(3, 4)), LogicError);
    stream->copy(all.part(0, 4), all.part(4, 4));
    stream->copy(all.part(3, 0), all.part(3, 0));
    EXPECT_THROW(device.allocate("huge", std::int64_t{1} << 60), RunError);
    EXPECT_EQ(device.allocate("empty", 0).typed(DType::kFloat32).count, 0);
}

}  // namespace
}  // namespace fullshard::device
