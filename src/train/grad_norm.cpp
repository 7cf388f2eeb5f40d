#include "train/grad_norm.h"

#include "kernels/square_sum.h"

#include <cmath>

namespace fullshard::train {

double global_grad_norm(const shard::UnitStore& store, const shard::Layout& layout,
                        const comm::Group& shard_group) {
    kernels::SquareSum sum;
    for (std::size_t i = 0; i < layout.units.size(); ++i) {
        // Padding and frozen parameters have zero gradients: whole shards can be added.
        if (layout.units[i].trainable()) {
            sum.add(store.gradient(static_cast<std::int64_t>(i)).as<float>());
        }
    }
    shard_group.all_reduce(std::span<std::int64_t>(sum.bins()), comm::Reduction::kSum);
    return std::sqrt(sum.value());
}

}  // namespace fullshard::train
