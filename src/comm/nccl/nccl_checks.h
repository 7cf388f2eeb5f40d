// Inside comm/nccl only: what can be known to be wrong before NCCL is asked.
#pragma once

#include "comm/group.h"

#include <string>
#include <vector>

namespace fullshard::comm {

/// NCCL orders the kernels of several communicators on one device by the host's calls
/// (NCCL_LAUNCH_ORDER_IMPLICIT) unless the environment says otherwise. To be called before NCCL is,
/// by the one thread that changes the environment.
void prepare_environment();

/// As NcclEntry::environment_notes.
std::vector<std::string> nccl_environment_notes();

/// Throws AgreedError unless all ranks have loaded the same NCCL, 2.28.9 or later. Collective.
void check_version(const Group& world);

/// Throws AgreedError (a usage error) when two ranks use one GPU, unless each has a NCCL_HOSTID of
/// its own, which makes NCCL take them for different hosts. `uuid` is of this rank's GPU.
/// Collective.
void check_devices(const Group& world, const std::string& uuid);

}  // namespace fullshard::comm
