#include "train/update.h"

#include "optim/clip.h"

namespace fullshard::train {

optim::GradientTreatment treatment_of(double grad_norm, double loss_scale,
                                      const Clipping& clipping) {
    optim::GradientTreatment treatment;
    treatment.factor = optim::clip_coefficient(grad_norm, clipping.norm) / loss_scale;
    if (clipping.value > 0.0) treatment.clip_value = clipping.value;
    return treatment;
}

void update_parameters(shard::UnitStore& store, const shard::Layout& layout,
                       optim::AdamW& optimizer, double lr,
                       const optim::GradientTreatment& treatment) {
    optimizer.begin_step();
    for (std::size_t i = 0; i < layout.units.size(); ++i) {
        if (!layout.units[i].trainable()) continue;
        const auto unit = static_cast<std::int64_t>(i);
        store.begin_update(unit);
        optimizer.step(unit, store.gradient(unit), lr, treatment);
        store.publish(unit);
    }
}

}  // namespace fullshard::train
