// The optimizer's step on all units.
#pragma once

#include "optim/adamw.h"
#include "shard/layout.h"
#include "shard/unit_store.h"

namespace fullshard::train {

/// Limits of the gradient; 0: none.
struct Clipping {
    double norm = 0.0;   ///< of the global 2-norm
    double value = 0.0;  ///< of the magnitude of each element
};

/// What turns a gradient that was computed under `loss_scale`, and whose unscaled norm is
/// `grad_norm`, into the one the optimizer takes: one factor undoes the scale and clips by norm.
optim::GradientTreatment treatment_of(double grad_norm, double loss_scale,
                                      const Clipping& clipping);

/// Steps the optimizer with the store's gradients, which `finish_reductions` has completed, and
/// publishes the new parameters. Collective over the store's ranks.
void update_parameters(shard::UnitStore& store, const shard::Layout& layout,
                       optim::AdamW& optimizer, double lr,
                       const optim::GradientTreatment& treatment);

}  // namespace fullshard::train
