#include "app/launch.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <ostream>
#include <string>
#include <vector>

namespace fullshard::app {
namespace {

using Variables = std::map<std::string, std::string>;

Environment environment_of(const Variables& variables) {
    return [variables](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::string() : found->second;
    };
}

/// The message of the refusal, empty when the launch is accepted.
std::string refusal(int mpi_ranks, const Variables& variables) {
    try {
        refuse_wrong_launch(mpi_ranks, environment_of(variables));
    } catch (const UsageError& error) {
        return error.what();
    }
    return {};
}

/// What srun gives a task of a step with `tasks` tasks, inside an allocation of 64 tasks.
Variables slurm_step(const std::string& tasks) {
    return {{"SLURM_JOB_ID", "4711"},        {"SLURM_NTASKS", "64"},         {"SLURM_STEP_ID", "0"},
            {"SLURM_STEP_NUM_TASKS", tasks}, {"SLURM_STEP_NUM_NODES", "16"}, {"SLURM_PROCID", "3"}};
}

struct WrongLaunch {
    const char* name;
    Variables variables;
    std::vector<std::string> message;  ///< what the user must be told
};

void PrintTo(const WrongLaunch& launch, std::ostream* stream) {
    *stream << launch.name;
}

class RefusesWrongLaunch : public ::testing::TestWithParam<WrongLaunch> {};

TEST_P(RefusesWrongLaunch, OfOneRankAndNamesTheCure) {
    const std::string message = refusal(1, GetParam().variables);
    for (const std::string& part : GetParam().message) {
        EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
    }
}

TEST_P(RefusesWrongLaunch, ButNeverWhenMpiFoundSeveralRanks) {
    EXPECT_EQ(refusal(2, GetParam().variables), "");
    EXPECT_EQ(refusal(4, GetParam().variables), "");
}

const WrongLaunch kWrongLaunches[] = {
    {"srun_without_pmix", slurm_step("4"), {"SLURM_STEP_NUM_TASKS = 4", "srun --mpi=pmix"}},
    {"later_step",
     {{"SLURM_STEP_ID", "12"}, {"SLURM_STEP_NUM_TASKS", "2"}},
     {"SLURM_STEP_NUM_TASKS = 2", "srun --mpi=pmix"}},
    {"srun_with_pmi2",
     {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"PMI_SIZE", "4"}, {"PMI_RANK", "1"}},
     {"srun --mpi=pmix"}},
    {"other_open_mpi",
     {{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_RANK", "7"}},
     {"OMPI_COMM_WORLD_SIZE = 8", "mpirun of the Open MPI that FullShard was built with"}},
    {"mpich",
     {{"PMI_SIZE", "3"}, {"PMI_RANK", "0"}},
     {"PMI_SIZE = 3", "another MPI's launcher", "mpirun of the Open MPI"}},
};

struct SoundLaunch {
    const char* name;
    Variables variables;
};

void PrintTo(const SoundLaunch& launch, std::ostream* stream) {
    *stream << launch.name;
}

class AcceptsSoundLaunch : public ::testing::TestWithParam<SoundLaunch> {};

TEST_P(AcceptsSoundLaunch, OfOneRank) {
    EXPECT_EQ(refusal(1, GetParam().variables), "");
}

/// A step's variables with another SLURM_STEP_ID, or without any when `id` is empty.
Variables with_step_id(const std::string& id) {
    Variables variables = slurm_step("4");
    variables["SLURM_STEP_ID"] = id;
    return variables;
}

const SoundLaunch kSoundLaunches[] = {
    {"no_launcher", {}},
    {"mpirun_of_one", {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}},
    {"srun_of_one_in_a_large_allocation", slurm_step("1")},
    {"batch_script_in_a_large_allocation", with_step_id("batch")},
    {"extern_step", with_step_id("extern")},
    {"salloc_shell",
     {{"SLURM_JOB_ID", "4711"}, {"SLURM_NTASKS", "64"}, {"SLURM_JOB_NUM_NODES", "16"}}},
    {"step_without_an_id", with_step_id("")},
    {"size_without_a_rank", {{"OMPI_COMM_WORLD_SIZE", "4"}, {"PMI_SIZE", "4"}}},
    {"unreadable_number", slurm_step("4(x2)")},
    {"number_beyond_64_bits", slurm_step("99999999999999999999")},
};

const auto kCaseName = [](const auto& info) { return std::string(info.param.name); };

INSTANTIATE_TEST_SUITE_P(Launch, RefusesWrongLaunch, ::testing::ValuesIn(kWrongLaunches),
                         kCaseName);
INSTANTIATE_TEST_SUITE_P(Launch, AcceptsSoundLaunch, ::testing::ValuesIn(kSoundLaunches),
                         kCaseName);

/// The refusal before MPI starts of a task of a step of 4, given these variables as well.
std::string early_refusal(Variables variables) {
    variables.merge(slurm_step("4"));
    try {
        refuse_tasks_without_pmi(environment_of(variables));
    } catch (const UsageError& error) {
        return error.what();
    }
    return {};
}

TEST(TasksWithoutPmi, AreRefusedWithTheCure) {
    const std::string message = early_refusal({});
    EXPECT_NE(message.find("SLURM_STEP_NUM_TASKS = 4"), std::string::npos) << message;
    EXPECT_NE(message.find("srun --mpi=pmix"), std::string::npos) << message;
}

TEST(TasksWithoutPmi, AreNoTasksThatCanMeetNorSingleOnes) {
    EXPECT_EQ(early_refusal({{"PMIX_NAMESPACE", "slurm.pmix.4711.0"}}), "");
    EXPECT_EQ(early_refusal({{"PMI_RANK", "0"}}), "");
    EXPECT_EQ(early_refusal({{"OMPI_COMM_WORLD_RANK", "0"}}), "");
    EXPECT_EQ(early_refusal({{"SLURM_STEP_NUM_TASKS", "1"}}), "");
    EXPECT_EQ(early_refusal({{"SLURM_STEP_ID", "batch"}}), "");
}

TEST(ProcessEnvironment, IsEmptyForWhatIsNotSet) {
    ASSERT_EQ(setenv("FULLSHARD_TEST_VARIABLE", "value", 1), 0);
    EXPECT_EQ(process_environment("FULLSHARD_TEST_VARIABLE"), "value");
    ASSERT_EQ(unsetenv("FULLSHARD_TEST_VARIABLE"), 0);
    EXPECT_EQ(process_environment("FULLSHARD_TEST_VARIABLE"), "");
}

/// What the doctor is told, as text.
std::string findings(std::int64_t allowed_cpus, const Variables& variables) {
    constexpr std::int64_t kNow = 1'000'000'000;
    std::string text;
    for (const doctor::Finding& each :
         launch_findings(allowed_cpus, kNow, environment_of(variables)))
        text += to_text(each);
    return text;
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(LaunchFindings, NameTheLauncher) {
    EXPECT_TRUE(has(findings(1, {}), "no launcher"));
    EXPECT_TRUE(has(findings(1, {{"OMPI_COMM_WORLD_RANK", "0"}}), "mpirun"));
    EXPECT_TRUE(has(findings(1, slurm_step("4")), "srun, step 0 of job 4711"));
}

TEST(LaunchFindings, UnknownEndOfTheJobIsAWarning) {
    Variables variables = slurm_step("4");
    EXPECT_TRUE(has(findings(1, variables), "warn  end of the job"));
    variables["SLURM_JOB_END_TIME"] = "1000000600";
    EXPECT_TRUE(has(findings(1, variables), "ok    end of the job         in 10 min"));
    variables["SLURM_JOB_END_TIME"] = "999999999";
    EXPECT_TRUE(has(findings(1, variables), "warn  end of the job"));
    EXPECT_FALSE(has(findings(1, {}), "end of the job"));
}

// Since Slurm 22.05 srun does not take over what sbatch was told: every task gets one core.
TEST(LaunchFindings, CpusThatSrunDidNotTakeOver) {
    Variables variables = slurm_step("4");
    EXPECT_FALSE(has(findings(1, variables), "CPUs of a task"));
    variables["SLURM_CPUS_PER_TASK"] = "8";
    EXPECT_TRUE(has(findings(8, variables), "ok    CPUs of a task"));
    EXPECT_TRUE(has(findings(1, variables), "-> export SRUN_CPUS_PER_TASK"));
    variables["SRUN_CPUS_PER_TASK"] = "8";
    EXPECT_TRUE(has(findings(1, variables), "-> look at srun's --cpu-bind"));
}

TEST(LaunchInfo, TellsLauncherJobAndCommand) {
    const std::vector<std::string> words{"train", "a.ini"};
    const auto info = [&](const Variables& variables) {
        return launch_info(environment_of(variables), "bin/fullshard", words);
    };
    EXPECT_EQ(info({}).launcher, "none");
    EXPECT_EQ(info({}).job, "");
    EXPECT_EQ(info({}).command, (std::vector<std::string>{"bin/fullshard", "train", "a.ini"}));
    EXPECT_EQ(info({{"PMI_RANK", "0"}}).launcher, "mpiexec");

    Variables job = slurm_step("4");
    job.insert({{"SLURM_JOB_PARTITION", "debug"}, {"SLURM_RESTART_COUNT", "2"}});
    EXPECT_FALSE(info(job).pmix);
    job.insert({"PMIX_NAMESPACE", "slurm.pmix.4711.0"});
    EXPECT_TRUE(info(job).pmix);
    EXPECT_EQ(info(job).launcher, "srun");
    EXPECT_EQ(info(job).job, "4711");
    EXPECT_EQ(info(job).partition, "debug");
    EXPECT_EQ(info(job).restarts, 2);
    EXPECT_FALSE(info(job).batch);
    // mpirun starts its daemons by srun, whose variables the ranks inherit.
    job.insert({{"OMPI_COMM_WORLD_RANK", "3"}, {"ENVIRONMENT", "BATCH"}});
    EXPECT_EQ(info(job).launcher, "mpirun");
    EXPECT_TRUE(info(job).batch);
}

}  // namespace
}  // namespace fullshard::app
