// The libraries' matrix products against sums in double, where they are installed; and libraries
// that compute nothing, which the tests bring along.
#include "kernels/gemm.h"

#include "base/error.h"
#include "base/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace fullshard::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Uniform in [-1, 1), in memory that starts `shift` floats after a multiple of 256 bytes.
class Values {
  public:
    Values(std::int64_t count, std::uint64_t seed, std::int64_t shift = 0)
        : memory_(static_cast<std::size_t>(count + shift + 64)) {
        const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
        first_ = memory_.data() + ((256 - address % 256) % 256) / sizeof(float) + shift;
        for (std::int64_t i = 0; i < count; ++i) {
            first_[i] =
                static_cast<float>(mix(seed, static_cast<std::uint64_t>(i)) >> 40) * 0x1p-23F -
                1.0F;
        }
    }
    float* data() { return first_; }

  private:
    std::vector<float> memory_;
    float* first_;
};

struct Library {
    std::string name;
    std::function<GemmOffer(int)> load;
};

std::ostream& operator<<(std::ostream& out, const Library& library) {
    return out << library.name;
}

class GemmLibrary : public testing::TestWithParam<Library> {
  protected:
    void SetUp() override {
        GemmOffer offer = GetParam().load(1);
        if (!offer.gemm) GTEST_SKIP() << offer.reason;
        gemm_ = std::move(offer.gemm);
    }

    std::unique_ptr<const Gemm> gemm_;
};

struct Shape {
    std::int64_t rows, columns, inner;
};
// Small, odd, with an edge of 1, and large enough to be cut into blocks.
constexpr Shape kShapes[] = {{1, 1, 1},    {1, 40, 33},   {40, 1, 33},    {7, 5, 1},
                             {64, 96, 48}, {33, 65, 127}, {130, 200, 513}};

/// An element of a matrix or of a transposed one.
double at(const Matrix& matrix, std::int64_t i, std::int64_t j) {
    return matrix.transposed ? matrix.data[j * matrix.row_stride + i]
                             : matrix.data[i * matrix.row_stride + j];
}

TEST_P(GemmLibrary, MultipliesAnyShapeWithAnyTransposes) {
    for (const auto& [m, n, k] : kShapes) {
        for (int variant = 0; variant < 8; ++variant) {
            const bool transposed_left = variant & 1, transposed_right = variant & 2;
            const bool accumulate = variant & 4;
            Values left(m * k * 2 + 8 * k + 8 * m, 1), right(k * n * 2 + 8 * k + 8 * n, 2);
            Values out(m * (n + 5), 3);
            const Matrix a{left.data(), m, k, (transposed_left ? m : k) + 3, transposed_left};
            const Matrix b{right.data(), k, n, (transposed_right ? k : n) + 2, transposed_right};
            std::vector<double> expected;
            for (std::int64_t i = 0; i < m; ++i) {
                for (std::int64_t j = 0; j < n + 5; ++j) {
                    float& element = out.data()[i * (n + 5) + j];
                    double sum = accumulate || j >= n ? element : 0.0;
                    for (std::int64_t l = 0; l < k && j < n; ++l) sum += at(a, i, l) * at(b, l, j);
                    expected.push_back(sum);
                    if (!accumulate && j < n) element = kNaN;
                }
            }
            gemm_->multiply({out.data(), m, n, n + 5}, a, b, accumulate);
            // Sums of k products of numbers below 1, in any order.
            const double tolerance = 1e-6 * std::sqrt(static_cast<double>(k)) + 1e-6;
            for (std::int64_t i = 0; i < m * (n + 5); ++i) {
                ASSERT_NEAR(out.data()[i], expected[static_cast<std::size_t>(i)], tolerance)
                    << m << " x " << n << " x " << k << ", variant " << variant << ", element "
                    << i;
            }
        }
    }
}

// Distances between rows at which caches work badly, and more than is read at once.
TEST_P(GemmLibrary, MultipliesNarrowMatricesOfAnyRowStride) {
    constexpr std::int64_t kInner = 700, kNarrow = 8;
    constexpr double kTolerance = 5e-5;  // 700 products of numbers below 1
    for (const std::int64_t wide : {256, 512, 2048, 2560}) {
        for (int variant = 0; variant < 8; ++variant) {
            const bool wide_left = variant & 1, transposed = variant & 2, accumulate = variant & 4;
            const std::int64_t m = wide_left ? wide : kNarrow, n = wide_left ? kNarrow : wide;
            Values left(m * kInner, 1), right(kInner * n, 2), out(m * n, 3);
            // The wide operand's rows of memory run across the sum, the other's either way.
            const bool transposed_left = wide_left || transposed;
            const bool transposed_right = wide_left && transposed;
            const Matrix a{left.data(), m, kInner, transposed_left ? m : kInner, transposed_left};
            const Matrix b{right.data(), kInner, n, transposed_right ? kInner : n,
                           transposed_right};
            const std::vector<float> before(out.data(), out.data() + m * n);
            if (!accumulate) std::fill_n(out.data(), m * n, kNaN);
            gemm_->multiply({out.data(), m, n, n}, a, b, accumulate);
            for (std::int64_t e = 0; e < m * n; e += 37) {
                double sum = accumulate ? before[static_cast<std::size_t>(e)] : 0.0;
                for (std::int64_t l = 0; l < kInner; ++l) sum += at(a, e / n, l) * at(b, l, e % n);
                ASSERT_NEAR(out.data()[e], sum, kTolerance)
                    << m << " x " << n << ", variant " << variant << ", element " << e;
            }
        }
    }
}

TEST_P(GemmLibrary, TakesEmptyMatrices) {
    float out[4] = {1, 2, 3, 4};
    gemm_->multiply({out, 2, 2, 2}, {nullptr, 2, 0, 0}, {nullptr, 0, 2, 2}, /*accumulate=*/true);
    EXPECT_EQ(out[3], 4.0F);
    gemm_->multiply({out, 2, 2, 2}, {nullptr, 2, 0, 0}, {nullptr, 0, 2, 2}, /*accumulate=*/false);
    EXPECT_EQ(std::count(std::begin(out), std::end(out), 0.0F), 4);
    const float some[4] = {1, 1, 1, 1};
    gemm_->multiply({nullptr, 0, 2, 2}, {nullptr, 0, 2, 2}, {some, 2, 2, 2}, /*accumulate=*/false);
    gemm_->multiply({nullptr, 2, 0, 0}, {some, 2, 2, 2}, {nullptr, 2, 0, 0}, /*accumulate=*/true);
}

TEST_P(GemmLibrary, RefusesWhatDoesNotFit) {
    Values some(64, 1);
    float* const data = some.data();
    EXPECT_THROW(gemm_->multiply({data, 2, 2, 2}, {data, 2, 3, 3}, {data, 2, 2, 2}, false),
                 LogicError);
    EXPECT_THROW(gemm_->multiply({data, 2, 2, 2}, {data, 2, 3, 2}, {data, 3, 2, 2}, false),
                 LogicError);
    EXPECT_THROW(gemm_->multiply(OutputMatrix{data, 2, 2, 2}.transpose(), {data, 2, 3, 3},
                                 {data, 3, 2, 2}, false),
                 LogicError);
}

TEST_P(GemmLibrary, PassesInfinitiesAndNaNsOn) {
    constexpr std::int64_t kSize = 50;
    for (const float bad : {kNaN, kInfinity}) {
        Values left(kSize * kSize, 1), right(kSize * kSize, 2), out(kSize * kSize, 3);
        left.data()[3 * kSize + 7] = bad;
        gemm_->multiply({out.data(), kSize, kSize, kSize}, {left.data(), kSize, kSize, kSize},
                        {right.data(), kSize, kSize, kSize}, /*accumulate=*/false);
        for (std::int64_t i = 0; i < kSize * kSize; ++i)
            EXPECT_EQ(std::isfinite(out.data()[i]), i / kSize != 3) << i;
        // Zero times them is NaN, and zeros are not skipped.
        std::fill_n(right.data(), kSize * kSize, 0.0F);
        gemm_->multiply({out.data(), kSize, kSize, kSize}, {left.data(), kSize, kSize, kSize},
                        {right.data(), kSize, kSize, kSize}, /*accumulate=*/false);
        EXPECT_TRUE(std::isnan(out.data()[3 * kSize]));
    }
}

TEST_P(GemmLibrary, BitsDoNotDependOnWhereMatricesStart) {
    // Parameters start at multiples of 256 bytes, tensors at multiples of 64: shifts of 16 floats.
    constexpr Shape kTrained[] = {{256, 288, 96}, {96, 288, 256}, {256, 96, 288}, {37, 31, 53}};
    for (const auto& [m, n, k] : kTrained) {
        for (const bool transposed_left : {false, true}) {
            for (const bool transposed_right : {false, true}) {
                std::vector<float> first;
                for (const std::int64_t shift : {0, 16, 32, 48}) {
                    Values left(m * k, 1, shift), right(k * n, 2, 48 - shift), out(m * n, 3, shift);
                    gemm_->multiply(
                        {out.data(), m, n, n},
                        {left.data(), m, k, transposed_left ? m : k, transposed_left},
                        {right.data(), k, n, transposed_right ? k : n, transposed_right},
                        /*accumulate=*/true);
                    const std::vector<float> result(out.data(), out.data() + m * n);
                    if (first.empty()) first = result;
                    EXPECT_EQ(0, std::memcmp(first.data(), result.data(), first.size() * 4))
                        << m << " x " << n << " x " << k << " shifted by " << shift;
                }
            }
        }
    }
}

TEST_P(GemmLibrary, ComputesWithMoreThreads) {
    const GemmOffer offer = GetParam().load(2);
    if (!offer.gemm) GTEST_SKIP() << offer.reason;
    constexpr std::int64_t kSize = 300;
    Values left(kSize * kSize, 1), right(kSize * kSize, 2), out(kSize * kSize, 3);
    const auto run = [&](const Gemm& gemm) {
        gemm.multiply({out.data(), kSize, kSize, kSize}, {left.data(), kSize, kSize, kSize},
                      {right.data(), kSize, kSize, kSize}, /*accumulate=*/false);
        return std::vector<float>(out.data(), out.data() + kSize * kSize);
    };
    const std::vector<float> of_two = run(*offer.gemm);
    EXPECT_EQ(run(*offer.gemm), of_two);
    const auto alone = GetParam().load(1);
    const std::vector<float> of_one = run(*alone.gemm);
    for (std::size_t i = 0; i < of_two.size(); ++i) ASSERT_NEAR(of_two[i], of_one[i], 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Libraries, GemmLibrary,
                         testing::Values(Library{"OneDnn", [](int n) { return load_onednn(n); }},
                                         Library{"OpenBlas",
                                                 [](int n) { return load_openblas(n); }}),
                         [](const auto& library) { return library.param.name; });

TEST(LoadGemm, SaysWhyThereIsNone) {
    EXPECT_NE(load_onednn(1, "libabsent.so").reason.find("libabsent.so"), std::string::npos);
    EXPECT_NE(load_openblas(1, "libabsent.so").reason.find("libabsent.so"), std::string::npos);
    EXPECT_EQ(load_onednn(1, "libabsent.so").gemm, nullptr);
}

TEST(LoadGemm, FindsALibraryThatComputesNothing) {
    for (const auto load : {+[](std::string_view file) { return load_onednn(1, file); },
                            +[](std::string_view file) { return load_openblas(1, file); }}) {
        const GemmOffer offer = load(FULLSHARD_IDLE_GEMM);
        EXPECT_EQ(offer.gemm, nullptr);
        if (offer.reason.ends_with("sanitizers")) GTEST_SKIP() << offer.reason;
        EXPECT_NE(offer.reason.find("computes a wrong product"), std::string::npos) << offer.reason;
    }
}

TEST(LoadGemm, FindsALibraryThatReportsAnError) {
    const GemmOffer offer = load_onednn(1, FULLSHARD_REFUSING_GEMM);
    EXPECT_EQ(offer.gemm, nullptr);
    if (offer.reason.ends_with("sanitizers")) GTEST_SKIP() << offer.reason;
    EXPECT_NE(offer.reason.find("returned status 3"), std::string::npos) << offer.reason;
}

TEST(LoadGemm, FindsALibraryWithoutTheFunction) {
    const GemmOffer offer = load_openblas(1, FULLSHARD_REFUSING_GEMM);
    EXPECT_EQ(offer.gemm, nullptr);
    if (offer.reason.ends_with("sanitizers")) GTEST_SKIP() << offer.reason;
    EXPECT_NE(offer.reason.find("has no cblas_sgemm"), std::string::npos) << offer.reason;
}

}  // namespace
}  // namespace fullshard::kernels
