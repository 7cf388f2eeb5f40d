// What users choose about a store.
#pragma once

#include "shard/unit_store.h"

#include <cstdint>

namespace fullshard::shard {

struct StoreOptions {
    std::int64_t parameter_slots = 2;  ///< per size class; used where units are not resident
    std::int64_t gradient_slots = 2;   ///< per size class, on each rank
    std::int64_t micro_batches = 1;    ///< per rank and step
    Faults faults = {};
};

}  // namespace fullshard::shard
