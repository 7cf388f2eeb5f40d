// The global norm of a step's gradient.
#pragma once

#include "comm/group.h"
#include "optim/state_device.h"
#include "shard/layout.h"
#include "shard/unit_store.h"

namespace fullshard::train {

/// Square root of the exact sum of squares of all gradient elements, each logical one counted once
/// wherever it lies: equal bits for every sharding and on every rank. Valid after
/// `finish_reductions`. NaN or infinity when any element is. Collective over `shard_group`: the
/// ranks over which gradients are sharded, which is one rank when each holds them all.
/// `device` is that of the store's memory.
double global_grad_norm(optim::StateDevice& device, const shard::UnitStore& store,
                        const shard::Layout& layout, const comm::Group& shard_group);

}  // namespace fullshard::train
