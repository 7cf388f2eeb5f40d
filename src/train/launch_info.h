// How the job was started, in the words that start it again.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fullshard::train {

/// What rank 0's environment and command line tell.
struct LaunchInfo {
    std::string launcher = "none";  ///< "srun", "mpirun", "mpiexec" or "none"
    std::string job = {};           ///< Slurm's number; empty outside of a job
    std::string partition = {};
    std::int64_t restarts = 0;              ///< times that Slurm has requeued the job
    bool batch = false;                     ///< the job is a script that sbatch took
    bool pmix = false;                      ///< srun gave the ranks PMIx
    std::vector<std::string> command = {};  ///< the program's path and its words
};

/// "mpirun", or "srun, Slurm job 4711 on partition debug, restart 2".
std::string launch_text(const LaunchInfo& launch);

/// The words as a shell reads them: quoted where they hold anything unusual.
std::string shell_text(std::span<const std::string> words);

/// `command` as a line for a shell, with the launcher that started `ranks` ranks before it. Options
/// of the launcher itself are unknown.
std::string launch_line(const LaunchInfo& launch, int ranks, std::span<const std::string> command);

}  // namespace fullshard::train
