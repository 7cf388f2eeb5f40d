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

namespace {

std::string started_by(const Environment& environment) {
    if (!environment("OMPI_COMM_WORLD_RANK").empty()) return "mpirun";
    if (!number(environment(kSrun.task))) return "no launcher: one process by itself";
    return fmt::format("srun, step {} of job {}", environment(kSrun.task),
                       environment("SLURM_JOB_ID"));
}

}  // namespace

std::vector<doctor::Finding> launch_findings(std::int64_t allowed_cpus, std::int64_t now,
                                             const Environment& environment) {
    std::vector<doctor::Finding> findings{doctor::fine("launcher", started_by(environment))};
    if (environment("SLURM_JOB_ID").empty()) return findings;

    if (const auto end = number(environment("SLURM_JOB_END_TIME"))) {
        const std::string left = fmt::format("in {} min by SLURM_JOB_END_TIME", (*end - now) / 60);
        findings.push_back(
            *end > now ? doctor::fine("end of the job", left)
                       : doctor::warning("end of the job", left, "a time to come",
                                         "submit with slurm/train.sbatch, which sets it anew"));
    } else {
        findings.push_back(doctor::warning("end of the job",
                                           "not known: SLURM_JOB_END_TIME is not set",
                                           "its time: a run stops before it with a checkpoint",
                                           "submit with slurm/train.sbatch, or export it in the "
                                           "batch script by scontrol show job"));
    }

    const std::int64_t asked = number(environment("SLURM_CPUS_PER_TASK")).value_or(1);
    if (asked > 1) {
        const std::string measured =
            fmt::format("{} for each task, {} allowed", asked, allowed_cpus);
        const std::string required = fmt::format("{} for each task", asked);
        findings.push_back(
            allowed_cpus >= asked
                ? doctor::fine("CPUs of a task", measured, required)
                : doctor::warning("CPUs of a task", measured, required,
                                  environment("SRUN_CPUS_PER_TASK").empty()
                                      ? "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK before srun"
                                      : "look at srun's --cpu-bind: SLURM_CPU_BIND may come from "
                                        "an outer srun"));
    }
    return findings;
}

train::LaunchInfo launch_info(const Environment& environment, const std::string& program,
                              std::span<const std::string> words) {
    train::LaunchInfo launch;
    // mpirun's own tasks come from srun when it runs within a job, so they are asked for it first.
    if (number(environment("OMPI_COMM_WORLD_RANK"))) {
        launch.launcher = "mpirun";
    } else if (number(environment(kSrun.task))) {
        launch.launcher = "srun";
    } else if (number(environment("PMI_RANK"))) {
        launch.launcher = "mpiexec";
    }
    launch.job = environment("SLURM_JOB_ID");
    launch.partition = environment("SLURM_JOB_PARTITION");
    launch.restarts = number(environment("SLURM_RESTART_COUNT")).value_or(0);
    launch.pmix = !environment("PMIX_NAMESPACE").empty();
    launch.batch = !launch.job.empty() && environment("ENVIRONMENT") == "BATCH";
    launch.command.assign(1, program);
    launch.command.insert(launch.command.end(), words.begin(), words.end());
    return launch;
}

}  // namespace fullshard::app
