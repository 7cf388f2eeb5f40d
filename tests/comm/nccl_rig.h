// What tests of NCCL's communicators stand on: a fake GPU a rank, groups, and the shim.
#pragma once

#include "comm/agree.h"
#include "comm/fake_gpu.h"
#include "comm/nccl/nccl_mesh.h"
#include "comm/nccl_shim.h"
#include "support/mpi_world.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fullshard::testing {

/// Shard groups of consecutive ranks, and the ranks that hold the same shard.
struct NcclGroups {
    comm::Group shard_group;
    comm::Group replicas;
};
NcclGroups nccl_groups(int shard_group_size);

class NcclTest : public ::testing::Test {
  protected:
    NcclTest();
    ~NcclTest() override;

    int rank() const { return world().rank(); }
    int size() const { return world().size(); }
    bool last() const { return rank() == size() - 1; }

    /// Collective.
    std::unique_ptr<comm::StreamMesh> start(const NcclGroups& groups);
    /// Starts with one shard group of all ranks and expects that all ranks throw one AgreedError
    /// and leave no communicator; its text.
    std::string failed_start(ExitCode code);
    /// The same for any work, without a look at the communicators.
    std::string agreed_error(ExitCode code, const std::function<void()>& work);

    NcclShim& shim_ = fresh_nccl_shim();
    FakeGpu gpu_{"GPU-" + std::to_string(world().rank())};
    comm::Progress progress_;
    comm::NcclOptions options_{.start_timeout_s = 20.0, .abort_timeout_s = 5.0};
};

/// Whether the text has the part, or the list the item; says what there is where it has not.
::testing::AssertionResult has(const std::string& text, const std::string& part);
::testing::AssertionResult has(const std::vector<std::string>& list, const std::string& item);

/// Functions in the order of their calls, "function communicator" each.
std::vector<std::string> call_texts(const NcclShim& shim);

}  // namespace fullshard::testing
