#include "train/owned_pieces.h"

#include "checkpoint/exchange/model_weights.h"
#include "checkpoint/format/fit.h"
#include "checkpoint/format/weights.h"
#include "comm/agree.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>

namespace fullshard::train {

namespace {

std::int64_t units_of(const shard::Layout& layout) {
    return static_cast<std::int64_t>(layout.units.size());
}

/// Elements [begin, begin + count) of the range that this rank owns of each unit, as `part`
/// chooses.
template <typename Part>
std::vector<OwnedPiece> pieces(const shard::Layout& layout, shard::UnitStore& store, Part part) {
    std::vector<OwnedPiece> list;
    std::size_t first_parameter = 0;
    for (std::int64_t u = 0; u < units_of(layout); ++u) {
        const shard::Unit& unit = layout.units[static_cast<std::size_t>(u)];
        const auto [begin, count] = part(store.master(u).count);
        for (const shard::ShardPiece& piece : unit.pieces(store.owned_begin(u) + begin, count)) {
            list.push_back({u, first_parameter + piece.parameter, piece.parameter_begin,
                            begin + piece.shard_begin, piece.count});
        }
        first_parameter += unit.parameters().size();
    }
    return list;
}

struct Part {
    std::int64_t begin = 0;
    std::int64_t count = 0;
};

/// The weights, and what of them and the model does not fit: thrown where `strict`.
std::unique_ptr<checkpoint::WeightsSource> open_source(
    const std::filesystem::path& path, const std::vector<checkpoint::NamedShape>& parameters,
    const std::optional<spec::Architecture>& architecture, bool strict,
    std::vector<std::string>& left_out) {
    if (architecture) {
        return checkpoint::open_model_weights(path, *architecture, strict ? nullptr : &left_out);
    }
    auto source = checkpoint::open_weights(path);
    if (strict) {
        checkpoint::check_parameters(*source, parameters, path.string());
    } else {
        left_out = checkpoint::differences(*source, parameters);
    }
    return source;
}

}  // namespace

std::vector<checkpoint::NamedShape> named_shapes(const shard::Layout& layout) {
    std::vector<checkpoint::NamedShape> list;
    for (const shard::Unit& unit : layout.units) {
        for (const spec::ParameterSpec& parameter : unit.parameters()) {
            list.push_back({parameter.name, parameter.shape, parameter.trainable});
        }
    }
    return list;
}

std::vector<OwnedPiece> owned_pieces(const shard::Layout& layout, shard::UnitStore& store) {
    return pieces(layout, store, [](std::int64_t owned) { return Part{0, owned}; });
}

std::vector<OwnedPiece> exclusive_pieces(const shard::Layout& layout, shard::UnitStore& store,
                                         const comm::Group& replicas) {
    return pieces(layout, store, [&](std::int64_t owned) {
        const std::int64_t block = (owned + replicas.size() - 1) / replicas.size();
        const std::int64_t begin = std::min(owned, block * replicas.rank());
        return Part{begin, std::min(block, owned - begin)};
    });
}

void begin_update_of_all(shard::UnitStore& store, const shard::Layout& layout) {
    for (std::int64_t unit = 0; unit < units_of(layout); ++unit) store.begin_update(unit);
}

void publish_all(shard::UnitStore& store, const shard::Layout& layout) {
    for (std::int64_t unit = 0; unit < units_of(layout); ++unit) store.publish(unit);
}

namespace {

/// The owned range of one unit after the other, in memory of the host.
class UnitOnHost {
  public:
    explicit UnitOnHost(shard::UnitStore& store) : store_(store) {}

    /// Those of `unit`; what was changed of another one is put back before.
    std::span<float> values(std::int64_t unit) {
        if (unit == unit_) return values_;
        put_back();
        unit_ = unit;
        values_.resize(static_cast<std::size_t>(store_.master(unit).count));
        store_.read_master(unit, values_);
        return values_;
    }
    void put_back() {
        if (unit_ >= 0) store_.set_master(unit_, values_);
    }

  private:
    shard::UnitStore& store_;
    std::int64_t unit_ = -1;
    std::vector<float> values_;
};

}  // namespace

std::vector<std::string> load_weights(shard::UnitStore& store, const shard::Layout& layout,
                                      const comm::Group& world, const std::filesystem::path& path,
                                      const std::optional<spec::Architecture>& architecture,
                                      bool strict) {
    begin_update_of_all(store, layout);
    std::vector<std::string> left_out;
    comm::agree(world, [&] {
        const auto parameters = named_shapes(layout);
        const auto source = open_source(path, parameters, architecture, strict, left_out);
        std::map<std::string_view, const checkpoint::WeightsSource::Tensor*> tensors;
        for (const auto& tensor : source->tensors()) tensors.emplace(tensor.name, &tensor);
        UnitOnHost unit(store);
        for (const OwnedPiece& piece : owned_pieces(layout, store)) {
            const checkpoint::NamedShape& parameter = parameters[piece.parameter];
            const auto found = tensors.find(parameter.parameter);
            if (found == tensors.end() || found->second->shape != parameter.shape ||
                !found->second->unread_type.empty()) {
                continue;
            }
            source->read(parameter.parameter, piece.parameter_begin,
                         piece.in(unit.values(piece.unit)));
        }
        unit.put_back();
    });
    publish_all(store, layout);
    return left_out;
}

}  // namespace fullshard::train
