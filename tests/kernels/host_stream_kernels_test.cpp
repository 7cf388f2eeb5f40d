// HostKernels on the devices that run without a GPU, and what they declare.
#include "kernels/host_stream_kernels.h"

#include "base/error.h"
#include "device/checked_device.h"
#include "device/host_device.h"
#include "kernels/stream_kernels_test.h"

#include <array>

namespace fullshard::kernels {
namespace {

constexpr std::int64_t kLargeCount = 20011;

testing::StreamRigMaker on_host() {
    return {"host", [] {
                return testing::StreamRig(std::make_unique<device::HostDevice>(),
                                          std::make_unique<HostKernels>(), kLargeCount);
            }};
}

testing::StreamRigMaker on_checked(std::uint64_t seed) {
    return {"checked" + std::to_string(seed), [seed] {
                return testing::StreamRig(std::make_unique<device::CheckedDevice>(seed),
                                          std::make_unique<HostKernels>(), kLargeCount);
            }};
}

INSTANTIATE_TEST_SUITE_P(HostDevices, StreamKernelsTest,
                         ::testing::Values(on_host(), on_checked(1), on_checked(2)), rig_name);

/// Two streams of a checking device without an edge between them.
class DeclaredAccesses : public ::testing::Test {
  protected:
    TypedSpan zeros(DType dtype, std::int64_t count) {
        const TypedSpan span =
            buffers_.emplace_back(device_.allocate("memory", count * size_of(dtype))).typed(dtype);
        stream_->zero(span);
        device_.synchronize({.timeout_s = 10});
        return span;
    }

    /// Whether an operation of the first stream reads or writes `span`: another stream's write is
    /// then refused.
    bool touched(TypedSpan span) {
        try {
            other_->zero(span);
        } catch (const LogicError&) {
            return true;
        }
        return false;
    }
    /// Whether it writes: another stream's read is then refused.
    bool written(TypedSpan span, TypedSpan scratch) {
        try {
            other_->copy(span, scratch);
        } catch (const LogicError&) {
            return true;
        }
        return false;
    }

    void expect(const std::function<void()>& operation, std::vector<TypedSpan> read,
                std::vector<TypedSpan> write) {
        std::vector<TypedSpan> scratch;
        for (const TypedSpan& span : read) scratch.push_back(zeros(span.dtype, span.count));
        operation();
        for (std::size_t i = 0; i < read.size(); ++i) {
            EXPECT_FALSE(written(read[i], scratch[i])) << "span " << i << " is only read";
            EXPECT_TRUE(touched(read[i])) << "span " << i << " is read";
        }
        for (const TypedSpan& span : write) {
            const TypedSpan onto = zeros(span.dtype, span.count);
            operation();
            EXPECT_TRUE(written(span, onto)) << "a span is written";
        }
        device_.synchronize({.timeout_s = 10});
    }

    device::CheckedDevice device_{1};
    std::unique_ptr<device::Stream> stream_ = device_.make_stream("compute");
    std::unique_ptr<device::Stream> other_ = device_.make_stream("other");
    std::vector<device::Buffer> buffers_;
    HostKernels kernels_;
};

TEST_F(DeclaredAccesses, AreAllThatAKernelTouches) {
    const TypedSpan a = zeros(DType::kFloat32, 8), b = zeros(DType::kFloat32, 8);
    expect([&] { kernels_.convert(a, b, *stream_); }, {a}, {b});
    expect([&] { kernels_.accumulate(a, b, *stream_); }, {a}, {b});
    expect([&] { kernels_.scale(a, 2.0, *stream_); }, {}, {a});
    const TypedSpan bins = zeros(DType::kInt64, SquareSum::kBins);
    expect([&] { kernels_.square_sum(a, bins, *stream_); }, {a}, {bins});

    const TypedSpan m = zeros(DType::kFloat32, 8), v = zeros(DType::kFloat32, 8);
    const TypedSpan copy = zeros(DType::kBFloat16, 8);
    const AdamWScalars scalars = adamw_scalars({.lr = 0.1});
    expect(
        [&] {
            kernels_.adamw_update({b, a, m, v, copy}, scalars, StochasticRounding{}, *stream_);
        },
        {a}, {b, m, v, copy});

    const TypedSpan targets = zeros(DType::kInt64, 2), losses = zeros(DType::kFloat32, 2);
    expect(
        [&] {
            kernels_.cross_entropy({a, 4, 4, targets, losses}, 1.0f, *stream_);
        },
        {targets}, {a, losses});
}

}  // namespace
}  // namespace fullshard::kernels
