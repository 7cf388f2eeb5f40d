// Was the program started the way the user believes?
#pragma once

#include "doctor/finding.h"
#include "train/launch_info.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace fullshard::app {

/// Looks up an environment variable; empty when it is not set.
using Environment = std::function<std::string(const char*)>;
std::string process_environment(const char* name);

/// Throws UsageError with the cure when this is one of several tasks that srun started without any
/// process management interface. To be called before MPI starts: Open MPI ends such a task in
/// MPI_Init with advice on how to build Slurm.
void refuse_tasks_without_pmi(const Environment& environment);

/// Throws UsageError with the cure when the launcher says that this step has several tasks but MPI
/// found one: otherwise N independent one-rank jobs would overwrite each other's results. Compares
/// with the step, not the allocation: a single process inside a large allocation is fine.
void refuse_wrong_launch(int mpi_ranks, const Environment& environment);

/// What launcher and batch system told this process, for the doctor: who started it, whether the
/// end of the job is known (at `now`, seconds since the epoch), and whether the step has the CPUs
/// that the job asked for each task: `allowed_cpus` by this process's mask.
std::vector<doctor::Finding> launch_findings(std::int64_t allowed_cpus, std::int64_t now,
                                             const Environment& environment);

/// Who started this process, as which job, and by which words: the program's path and what followed
/// it.
train::LaunchInfo launch_info(const Environment& environment, const std::string& program,
                              std::span<const std::string> words);

}  // namespace fullshard::app
