// How a model will lie on the ranks of a job, known before any of its memory exists.
#pragma once

#include "comm/group.h"
#include "comm/placement.h"
#include "comm/topology.h"
#include "config/batch.h"
#include "config/deck.h"
#include "shard/layout.h"
#include "shard/plan.h"
#include "shard/schedule.h"
#include "shard/strategy.h"
#include "spec/model_spec.h"
#include "train/assemble.h"
#include "train/units_table.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fullshard::train {

struct ShardingPlan {
    comm::Topology topology;
    std::vector<comm::RankPlace> places;  ///< in the order of topology.world
    const shard::Strategy* strategy = nullptr;
    comm::Mesh mesh;
    shard::Layout layout;
    shard::StoreOptions options;
    shard::Schedule schedule;
    shard::StoreKind kind{};

    shard::Place place() const { return shard::place_of(mesh); }
    /// What the store will allocate, and the optimizer's moments.
    std::vector<shard::Allocation> memory() const;
    shard::Traffic traffic(const shard::Work& work) const;
    /// Lines for the banner: ranks and nodes, model and units, types.
    std::vector<std::string> describe() const;
    /// What memory() adds up to, in bytes.
    struct MemorySums {
        std::int64_t rank = 0;         ///< of each rank's own
        std::int64_t node_shared = 0;  ///< once for the ranks that share it
        std::int64_t node = 0;         ///< all of the node that has most ranks
    };
    MemorySums memory_sums() const;
    /// The table of `model`'s units with their slots, folded to at most `most_rows`, and the memory
    /// plan; ends with a line break.
    std::string units_text(const spec::ModelSpec& model, std::size_t most_rows = kAllUnits) const;
};

/// Whether some shard group of `shards` consecutive ranks has unlike numbers of ranks on its nodes,
/// whose sizes in ranks are `node_sizes`: its ranks exchange messages, also within a node.
bool has_uneven_group(std::span<const int> node_sizes, std::int64_t shards);

/// `model` has its parameter groups applied. Throws AgreedError where the ranks and their nodes do
/// not allow what the deck asks for. Collective over `job`.
ShardingPlan plan_sharding(const config::Deck& deck, const config::Batch& batch,
                           const spec::ModelSpec& model, const comm::Group& job);

/// A deck's model, with its parameter groups applied, and how it will lie on the ranks.
struct PlannedModel {
    spec::ModelSpec spec;
    ShardingPlan plan;
};

/// For those who only look: allocates none of the model. Throws AgreedError for mistakes that show
/// with the model or the number of ranks. Collective over `job`.
PlannedModel plan_model(const config::Deck& deck, const ModelFactory& custom_model,
                        const comm::Group& job);

}  // namespace fullshard::train
