// Inside comm/nccl only: NCCL's communicators for a mesh of ranks, bootstrapped over MPI.
#pragma once

#include "comm/nccl_entry.h"

#include <memory>

namespace fullshard::comm {

/// As NcclEntry::make_mesh.
std::unique_ptr<StreamMesh> make_nccl_mesh(const Group& world, const Group& shard_group,
                                           const Group& replicas, device::Device& device,
                                           Progress& progress, const NcclOptions& options);

}  // namespace fullshard::comm
