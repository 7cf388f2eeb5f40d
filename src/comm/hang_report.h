// A hang explained: what each rank says about itself, and what follows from it.
#pragma once

#include "comm/ledger.h"

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace fullshard::comm {

/// Files in a folder that all ranks see, because MPI is of no use by then.
/// Throws RunError naming the path.
void write_report(const std::filesystem::path& folder, const RankReport& report);
/// Those that are there and whole, by rank.
std::vector<RankReport> read_reports(const std::filesystem::path& folder);

/// One line: which ranks have not come to which collective, who waits for them there, and where
/// they are instead. `reports` are by rank and need not be complete: a rank without one has
/// stopped, died or lost the file system. `ranks` is the size of the job.
std::string explain_hang(std::span<const RankReport> reports, int ranks);

}  // namespace fullshard::comm
