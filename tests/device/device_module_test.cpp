// What a user is told where the device module, a library that it needs or a driver is missing; with
// a GPU, that streams, events and copies of CUDA do what device.h says.
#include "device/device_module.h"

#include "base/error.h"
#include "device/device.h"
#include "device/module_build.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace fullshard::device {
namespace {

template <typename Error>
std::string message_of(const std::filesystem::path& file) {
    try {
        const DeviceModule module(file);
    } catch (const Error& error) {
        return error.what();
    }
    ADD_FAILURE() << file << " was loaded";
    return {};
}

void expect_in(const std::string& part, const std::string& text) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
}

TEST(DeviceModule, NotInstalled) {
    const std::string text = message_of<UsageError>("no/such/module.so");
    expect_in("no/such/module.so", text);
    expect_in("built without CUDA", text);
}

TEST(DeviceModule, NamesTheLibraryThatIsMissing) {
    const std::string text = message_of<RunError>(FULLSHARD_NEEDY_MODULE);
    expect_in("libfullshard_absent.so: cannot open shared object file", text);
    expect_in("tools/setup", text);
}

TEST(DeviceModule, OfAnotherBuild) {
    const std::string text = message_of<RunError>(FULLSHARD_OTHER_BUILD_MODULE);
    expect_in("(FullShard 0.0.1)", text);
    expect_in(module_build(), text);
}

/// The module of this build, loaded once: it takes seconds.
const DeviceModule& real_module() {
    static const DeviceModule module;
    return module;
}

bool is_built() {
    return std::filesystem::exists(DeviceModule::installed_file());
}

TEST(DeviceModule, LoadsWithoutADriverAndSaysSo) {
    if (!is_built()) GTEST_SKIP() << "this build has no device module";
    const CudaDevices& cuda = real_module().cuda();
    EXPECT_THROW(real_module().entry<void>("fullshard_no_such_entry"), LogicError);
    if (std::filesystem::exists("/proc/driver/nvidia/version"))
        GTEST_SKIP() << "this machine has a driver";
    for (const bool open : {false, true}) try {
            open ? void(cuda.open(0, "rank 0 on here")) : void(cuda.count());
            ADD_FAILURE() << "a device was found";
        } catch (const RunError& error) {
            expect_in("no NVIDIA driver", error.what());
            expect_in("libcuda.so.1", error.what());
        }
}

/// Needs a GPU.
class CudaDeviceTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!is_built()) GTEST_SKIP() << "this build has no device module";
        try {
            device_ = real_module().cuda().open(0, "rank 0 on here");
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
    expect_in("compute capability", device_->describe());
    EXPECT_GT(device_->memory().total_bytes, device_->memory().free_bytes);
    EXPECT_THROW(real_module().cuda().open(4096, "rank 0 on here"), RunError);
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
