// On how many ranks can a deck run?
#pragma once

#include "config/deck.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fullshard::config {

/// The positive divisors of a positive number, ascending.
std::vector<std::int64_t> divisors(std::int64_t number);

/// Numbers of ranks, ascending, that can share `global_batch` sequences equally in micro-batches of
/// `micro_batch`: the divisors of their quotient. None when that is no whole number.
std::vector<std::int64_t> valid_world_sizes(std::int64_t global_batch, std::int64_t micro_batch);

/// Those at which resolve_batch() succeeds. Nothing when the deck fixes no global batch, so that
/// every number of ranks does.
std::optional<std::vector<std::int64_t>> valid_world_sizes(const Deck& deck);

/// "2 ranks", "1, 2 or 4 ranks"; of a long list the sizes nearest to `ranks`, and how many there
/// are. `sizes` are ascending and not empty.
std::string world_sizes_text(std::span<const std::int64_t> sizes, std::int64_t ranks);

/// Every valid number of ranks with the batch sizes it gives, one a line below a heading.
std::string world_sizes_table(const Deck& deck);

}  // namespace fullshard::config
