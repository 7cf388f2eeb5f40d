// What a user is told where the device module, a library that it needs or a driver is missing; with
// a GPU, that streams, events and copies of CUDA do what device.h says.
#include "device/device_module.h"

#include "base/error.h"
#include "device/module_build.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

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
    EXPECT_THROW(real_module().entry<int>("fullshard_no_such_entry"), LogicError);
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

}  // namespace
}  // namespace fullshard::device
