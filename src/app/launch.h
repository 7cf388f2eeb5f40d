// Was the program started the way the user believes?
#pragma once

#include <functional>
#include <string>

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

}  // namespace fullshard::app
