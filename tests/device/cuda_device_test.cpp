// On a GPU: streams, events and copies of CUDA do what device.h says.
#include "base/error.h"
#include "device/device_module.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace fullshard::device {
namespace {

const DeviceModule& module() {
    static const DeviceModule loaded;
    return loaded;
}

class CudaDeviceTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!std::filesystem::exists(DeviceModule::installed_file()))
            GTEST_SKIP() << "this build has no device module";
        try {
            device_ = module().cuda().open(0, "rank 0 on here");
        } catch (const RunError& error) {
            GTEST_SKIP() << error.what();
        }
    }

    const HostWait patient_{.timeout_s = 20.0};
    std::unique_ptr<Device> device_;
};

TEST_F(CudaDeviceTest, DescribesItself) {
    EXPECT_EQ(device_->kind(), DeviceKind::kCuda);
    EXPECT_EQ(device_->uuid().size(),
              std::string("GPU-01234567-89ab-cdef-0123-456789abcdef").size());
    EXPECT_NE(device_->describe().find("compute capability"), std::string::npos);
    EXPECT_GT(device_->memory().total_bytes, device_->memory().free_bytes);
    EXPECT_THROW(module().cuda().open(4096, "rank 0 on here"), RunError);
    EXPECT_THROW(device_->allocate("huge", std::int64_t{1} << 50), RunError);
}

TEST_F(CudaDeviceTest, CopiesAreOrderedByStreamsAndEvents) {
    constexpr std::int64_t kFloats = 1 << 22;
    const auto up = device_->make_stream("up");
    const auto down = device_->make_stream("down", Priority::kHigh);
    const auto begin = device_->make_event(EventUse::kTiming);
    const auto uploaded = device_->make_event(EventUse::kTiming);
    const auto downloaded = device_->make_event();
    const Buffer from = device_->allocate("from", kFloats * 4, Placement::kPinnedHost);
    const Buffer middle = device_->allocate("middle", kFloats * 4);
    const Buffer to = device_->allocate("to", kFloats * 4, Placement::kPinnedHost);
    const std::int64_t created = device_->created();
    const std::span<float> source = from.typed(DType::kFloat32).as<float>();
    const std::span<float> result = to.typed(DType::kFloat32).as<float>();
    for (int step = 0; step < 10; ++step) {
        for (std::size_t i = 0; i < source.size(); ++i)
            source[i] = static_cast<float>(i % 1000) + static_cast<float>(step);
        up->record(*begin);
        up->zero(middle.typed(DType::kFloat32));
        up->copy(from.typed(DType::kFloat32), middle.typed(DType::kFloat32));
        up->record(*uploaded);
        down->wait(*uploaded);
        down->copy(middle.typed(DType::kFloat32), to.typed(DType::kFloat32));
        down->record(*downloaded);
        device_->wait(*downloaded, patient_);
        ASSERT_TRUE(downloaded->reached());
        ASSERT_TRUE(std::ranges::equal(source, result)) << "step " << step;
        ASSERT_GT(uploaded->seconds_since(*begin), 0.0);
    }
    up->fill(middle.typed(DType::kFloat32), std::byte{1});
    up->copy(middle.typed(DType::kInt64).part(0, 1), to.typed(DType::kInt64).part(0, 1));
    device_->synchronize(patient_);
    EXPECT_EQ(to.typed(DType::kInt64).as<std::int64_t>()[0], 0x0101010101010101);
    EXPECT_EQ(device_->created(), created);
}

TEST_F(CudaDeviceTest, RefusesWhatWouldHoldUpTheHost) {
    const auto stream = device_->make_stream("stream");
    const Buffer buffer = device_->allocate("buffer", 64);
    std::vector<float> pageable(16);
    EXPECT_THROW(stream->copy(TypedSpan(std::span(pageable)), buffer.typed(DType::kFloat32)),
                 LogicError);
    EXPECT_THROW(stream->run({"work"}, [] {}), LogicError);
}

}  // namespace
}  // namespace fullshard::device
