// Inside comm/nccl only: the first collectives of a communicator.
#pragma once

#include "comm/group.h"
#include "device/device.h"

#include <nccl.h>

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

namespace fullshard::comm {

/// NCCL connects ranks when a kind of collective is first called. This calls each kind once, in one
/// order, and compares the results, so that wrong interfaces or peers show before the run begins.
/// After an error it must outlive the communicator, which may still use its memory.
class WarmUp {
  public:
    /// `comm` has the ranks of `group`. Not collective.
    WarmUp(const Group& group, ncclComm_t comm, device::Device& device);

    /// Throws AgreedError on all ranks of the world when a collective of the communicator, which is
    /// called `name`, fails, is wrong, or takes more than `timeout_s`. Collective over `world`.
    void run(const Group& world, std::string_view name, double timeout_s);

  private:
    struct Step {
        const char* name;
        std::function<ncclResult_t()> call;
    };
    std::array<Step, 4> steps();
    void begin();
    void end();
    void compare();
    std::span<float> host_values();

    int rank_;
    int size_;
    ncclComm_t comm_;
    device::Device& device_;
    device::Buffer on_device_;
    device::Buffer on_host_;
    std::unique_ptr<device::Stream> stream_;
    std::unique_ptr<device::Event> end_;
};

}  // namespace fullshard::comm
