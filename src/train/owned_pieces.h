// Which parts of which parameters a rank owns: the bridge from stores to files.
#pragma once

#include "checkpoint/parallel/piece.h"
#include "comm/group.h"
#include "shard/layout.h"
#include "shard/unit_store.h"
#include "spec/architecture.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fullshard::train {

/// All parameters of the model, units in order.
std::vector<checkpoint::NamedShape> named_shapes(const shard::Layout& layout);

/// Part of a parameter within the range of a unit that a rank owns.
struct OwnedPiece {
    std::int64_t unit = 0;
    std::size_t parameter = 0;         ///< index in named_shapes
    std::int64_t parameter_begin = 0;  ///< first element within the parameter
    std::int64_t owned_begin = 0;      ///< first element within the owned range
    std::int64_t count = 0;

    /// The piece of memory that is laid out like the owned range: master shard, gradient, moment.
    template <typename T>
    std::span<T> in(std::span<T> owned) const {
        return owned.subspan(static_cast<std::size_t>(owned_begin),
                             static_cast<std::size_t>(count));
    }
};

/// Everything this rank owns.
std::vector<OwnedPiece> owned_pieces(const shard::Layout& layout, shard::UnitStore& store);
/// A part of it such that the ranks' parts cover each element once: what `replicas` own alike is
/// divided among them.
std::vector<OwnedPiece> exclusive_pieces(const shard::Layout& layout, shard::UnitStore& store,
                                         const comm::Group& replicas);

/// Sets the parameters from a file that checkpoint::open_weights takes, each rank reading its own
/// ranges, and publishes them. A model of a known `architecture` takes files of other programs too,
/// as checkpoint::open_model_weights does. Throws AgreedError listing what is missing, extra or of
/// another shape; where it is not `strict`, returns that list, and parameters without values keep
/// theirs. Collective.
std::vector<std::string> load_weights(shard::UnitStore& store, const shard::Layout& layout,
                                      const comm::Group& world, const std::filesystem::path& path,
                                      const std::optional<spec::Architecture>& architecture,
                                      bool strict = true);

/// Waits for the last readers of all units, so that master shards may be written; then
/// `publish_all`. Collective.
void begin_update_of_all(shard::UnitStore& store, const shard::Layout& layout);
void publish_all(shard::UnitStore& store, const shard::Layout& layout);

}  // namespace fullshard::train
