#include "app/launch.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <system_error>

namespace fullshard::app {

namespace {

struct Launcher {
    const char* tasks;  ///< variable that holds the number of tasks
    const char* task;   ///< numeric only in a process that the launcher started as a task
    const char* cure;
};

constexpr Launcher kSrun{"SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID",
                         "start it with srun --mpi=pmix (srun --mpi=list shows what the cluster "
                         "offers), or with mpirun"};

constexpr std::array kLaunchers{
    kSrun,
    Launcher{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
             "use the mpirun of the Open MPI that FullShard was built with (fullshard --version)"},
    Launcher{"PMI_SIZE", "PMI_RANK",
             "this looks like another MPI's launcher: use the mpirun of the Open MPI that "
             "FullShard was built with, or srun --mpi=pmix"},
};

/// Each is set in every process that can find the others of its job: by PMIx, by PMI-1 and PMI-2,
/// and by mpirun, which srun may have started.
constexpr std::array kMeansToMeet{"PMIX_NAMESPACE", "PMI_RANK", "OMPI_COMM_WORLD_RANK"};

std::optional<std::int64_t> number(const std::string& text) {
    std::int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || rest != end) return std::nullopt;
    return value;
}

/// The number of tasks that this launcher started together with this one, 1 if it started none.
std::int64_t tasks_of(const Launcher& launcher, const Environment& environment) {
    if (!number(environment(launcher.task))) return 1;
    return number(environment(launcher.tasks)).value_or(1);
}

}  // namespace

std::string process_environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

void refuse_tasks_without_pmi(const Environment& environment) {
    const std::int64_t tasks = tasks_of(kSrun, environment);
    const auto is_set = [&](const char* name) { return !environment(name).empty(); };
    if (tasks <= 1 || std::ranges::any_of(kMeansToMeet, is_set)) return;
    throw UsageError(fmt::format("{} = {}, but srun gave the tasks no PMIx to find each other; {}",
                                 kSrun.tasks, tasks, kSrun.cure));
}

void refuse_wrong_launch(int mpi_ranks, const Environment& environment) {
    if (mpi_ranks > 1) return;
    for (const Launcher& launcher : kLaunchers) {
        const std::int64_t tasks = tasks_of(launcher, environment);
        if (tasks <= 1) continue;
        throw UsageError(
            fmt::format("{} = {}, but MPI found one rank: every task would train alone; {}",
                        launcher.tasks, tasks, launcher.cure));
    }
}

}  // namespace fullshard::app
