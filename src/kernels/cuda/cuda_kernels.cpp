// StreamKernels on CUDA, and its entry of the device module.
#include "kernels/cuda_kernels.h"

#include "device/cuda/check.h"
#include "kernels/cuda/launches.h"
#include "kernels/stream_checks.h"

#include <cuda_runtime.h>

#include <string_view>
#include <utility>

namespace fullshard::kernels {
namespace {

int multiprocessors_of_current_device(std::string_view process) {
    int device = 0, count = 0;
    device::check_cuda(cudaGetDevice(&device), "cudaGetDevice", process);
    device::check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
                       "cudaDeviceGetAttribute", process);
    return count;
}

class CudaKernels final : public StreamKernels {
  public:
    explicit CudaKernels(std::string process)
        : process_(std::move(process)),
          multiprocessors_(multiprocessors_of_current_device(process_)) {}

    void convert(TypedSpan from, TypedSpan to, device::Stream& stream) const override {
        check_convert(from, to, DeviceKind::kCuda);
        launch_convert(from, to, on(stream));
        check_launch("convert");
    }

    void accumulate(TypedSpan from, TypedSpan sum, device::Stream& stream) const override {
        check_accumulate(from, sum, DeviceKind::kCuda);
        launch_accumulate(from, sum, on(stream));
        check_launch("accumulate");
    }

    void scale(TypedSpan values, double factor, device::Stream& stream) const override {
        check_scale(values, DeviceKind::kCuda);
        launch_scale(values, static_cast<float>(factor), on(stream));
        check_launch("scale");
    }

    void square_sum(TypedSpan values, TypedSpan bins, device::Stream& stream) const override {
        check_square_sum(values, bins, DeviceKind::kCuda);
        launch_square_sum(values, bins, on(stream));
        check_launch("square_sum");
    }

    void adamw_update(const AdamWMemory& memory, const AdamWScalars& scalars,
                      std::optional<StochasticRounding> stochastic,
                      device::Stream& stream) const override {
        check_adamw_update(memory, stochastic, DeviceKind::kCuda);
        launch_adamw_update(memory, scalars, stochastic, on(stream));
        check_launch("adamw_update");
    }

    void cross_entropy(const CrossEntropyRows& rows, float factor,
                       device::Stream& stream) const override {
        check_cross_entropy(rows, DeviceKind::kCuda);
        launch_cross_entropy(rows, factor, on(stream));
        check_launch("cross_entropy");
    }

  private:
    Launch on(const device::Stream& stream) const {
        return {static_cast<cudaStream_t>(stream.native()), multiprocessors_};
    }
    void check_launch(std::string_view kernel) const {
        device::check_cuda(cudaGetLastError(), kernel, process_);
    }

    std::string process_;
    int multiprocessors_;
};

class Maker final : public CudaKernelsMaker {
  public:
    std::unique_ptr<StreamKernels> make(std::string process) const override {
        return std::make_unique<CudaKernels>(std::move(process));
    }
};

}  // namespace
}  // namespace fullshard::kernels

extern "C" [[gnu::visibility("default")]] void* fullshard_cuda_kernels() {
    static fullshard::kernels::Maker maker;
    return static_cast<fullshard::kernels::CudaKernelsMaker*>(&maker);
}
