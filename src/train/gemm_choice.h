// Which library multiplies a run's fp32 matrices.
#pragma once

#include "comm/group.h"
#include "config/deck.h"
#include "kernels/gemm.h"
#include "model/model.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fullshard::train {

/// The same library on every rank.
struct GemmChoice {
    config::Gemm key = config::Gemm::kLibTorch;  ///< names a library
    std::shared_ptr<const kernels::Gemm> gemm;
    std::string description;         ///< for the log: "oneDNN 2.6.3 (preferred)"
    std::vector<std::string> notes;  ///< what the log should warn of
};

/// Loads the library that kernels.gemm names. Where it leaves the choice open, that of the run that
/// goes on comes first (`kept`, where it is known and all ranks can load it); auto measures on rank
/// 0 for a fraction of a second. A model whose stages leave no products to it gets LibTorch's.
/// Throws AgreedError, a UsageError's, when a rank lacks a library that the deck names. Collective.
GemmChoice choose_gemm(const config::Kernels& kernels, std::optional<config::Gemm> kept,
                       const model::Model& model, const comm::Group& job);

/// The deck of a run that goes on from one with the deck `before`: where it leaves the choice of
/// the library open, it has that run's.
config::Deck with_kept_gemm(config::Deck deck, const config::Deck& before);

}  // namespace fullshard::train
