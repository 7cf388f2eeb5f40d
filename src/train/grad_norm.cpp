#include "train/grad_norm.h"

#include "kernels/square_sum.h"

#include <cmath>
#include <vector>

namespace fullshard::train {

double global_grad_norm(optim::StateDevice& device, const shard::UnitStore& store,
                        const shard::Layout& layout, const comm::Group& shard_group) {
    std::vector<TypedSpan> shards;
    shards.reserve(layout.units.size());
    for (std::size_t i = 0; i < layout.units.size(); ++i) {
        // Padding and frozen parameters have zero gradients: whole shards can be added.
        if (!layout.units[i].trainable()) continue;
        shards.push_back(store.gradient(static_cast<std::int64_t>(i)));
    }
    kernels::SquareSum sum = device.square_sum(shards);
    shard_group.all_reduce(std::span<std::int64_t>(sum.bins()), comm::Reduction::kSum);
    return std::sqrt(sum.value());
}

}  // namespace fullshard::train
