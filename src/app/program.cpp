#include "app/program.h"

#include "app/command_line.h"
#include "app/launch.h"
#include "app/needs.h"
#include "app/run_devices.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "comm/agree.h"
#include "comm/ledger.h"
#include "comm/mpi_session.h"
#include "comm/mpi_version.h"
#include "comm/placement.h"
#include "comm/watchdog.h"
#include "config/parser.h"
#include "doctor/doctor.h"
#include "train/architecture.h"
#include "train/generate.h"
#include "train/run.h"
#include "train/stop.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace fullshard::app {
namespace {

/// Activations come and go with every micro-batch. Fresh pages cost more than the arithmetic on
/// them: let the allocator keep what it once got instead of returning it to the system.
void keep_freed_memory() {
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, -1);
}

/// Rank 0's words on every rank: launchers can give each rank its own.
std::vector<std::string> broadcast_words(const std::vector<std::string>& words,
                                         const comm::Group& job) {
    std::string joined;
    for (const std::string& word : words) joined += word + '\0';
    std::vector<std::string> result;
    std::istringstream stream(job.broadcast(std::move(joined), 0));
    for (std::string word; std::getline(stream, word, '\0');) result.push_back(word);
    return result;
}

/// The deck is read by one rank, so that all ranks see the same text. Without one all keys that the
/// command line leaves have their defaults.
config::Deck read_deck(const Command& command, const comm::Group& job) {
    std::string text;
    comm::agree(job, [&] {
        if (job.rank() != 0 || command.deck.empty()) return;
        try {
            text = read_file(command.deck);
        } catch (const DataError& error) {
            throw UsageError(error.what());
        }
    });
    text = job.broadcast(std::move(text), 0);
    config::Deck deck;
    comm::agree(job, [&] {
        deck = train::with_model_config(config::parse(text, command.deck, command.words));
    });
    return deck;
}

ExitCode run_doctor(const Command& command, const config::Deck& deck, const comm::Group& job,
                    const comm::MpiSession& session, const train::ModelFactory& custom_model) {
    doctor::Request request{.job = job,
                            .deck = deck,
                            .mpi_library = comm::mpi_version().loaded,
                            .thread_level = session.thread_level(),
                            .launch = launch_findings(std::ssize(comm::allowed_cpus()),
                                                      std::time(nullptr), process_environment)};
    if (!command.deck.empty()) request.needs = needs_of_run(deck, job, custom_model);
    std::optional<RunDevices> devices;
    if (deck.device.kind != config::Processor::kCpu)
        request.devices = &devices.emplace(deck.device);
    const bool sound = doctor::examine(request, [](const std::string& text) {
        std::fputs(text.c_str(), stdout);
        std::fflush(stdout);
    });
    return sound ? ExitCode::kDone : ExitCode::kRunError;
}

/// Until the deck says otherwise.
constexpr double kStartTimeoutSeconds = 300.0;

/// What lives as long as the process's part in the job.
struct Process {
    double started =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    train::StopRequest stop{};
    std::shared_ptr<comm::Ledger> ledger = std::make_shared<comm::Ledger>();
    comm::Watchdog watchdog{ledger};
};

ExitCode run_command(const comm::MpiSession& session, Process& process, const std::string& program,
                     const std::vector<std::string>& words,
                     const train::ModelFactory& custom_model) {
    const comm::Group start = comm::Group::world(kStartTimeoutSeconds, process.ledger);
    const std::vector<std::string> job_words = broadcast_words(words, start);
    Command command;
    comm::agree(start, [&] {
        refuse_wrong_launch(session.size(), process_environment);
        command = parse_command(job_words);
    });
    const config::Deck deck = read_deck(command, start);
    Log log(session.rank());
    // While the ranks set up, one may be busy for long: its own deadline ends the job then.
    process.ledger->allow(deck.comm.start_timeout_s);
    const comm::Group job =
        start.renewed("all ranks", std::max(deck.comm.timeout_s, deck.comm.start_timeout_s),
                      deck.comm.check ? comm::CollectiveCheck::kOn : comm::CollectiveCheck::kOff);
    if (command.name == CommandName::kDoctor)
        return run_doctor(command, deck, job, session, custom_model);
    if (command.print_units) {
        const std::string text = train::units_of_run(deck, job, custom_model);
        if (session.rank() == 0) std::fputs(text.c_str(), stdout);
        return ExitCode::kDone;
    }
    if (command.print_world_sizes) {
        const std::string text = train::world_sizes_of_run(deck, job);
        if (session.rank() == 0) std::fputs(text.c_str(), stdout);
        return ExitCode::kDone;
    }
    const train::RunEnvironment environment{
        .launch = launch_info(process_environment, program, job_words),
        .started = process.started,
        .job_end = process_environment("SLURM_JOB_END_TIME"),
        .stop = process.stop,
        .watchdog = process.watchdog,
        .custom_model = custom_model};
    if (command.name == CommandName::kEval)
        return train::run_evaluation(deck, job, environment, log);
    if (command.name == CommandName::kGenerate)
        return train::run_generation(deck, job, environment, log);
    return train::run_training(deck, job, environment, log);
}

}  // namespace

int run_program(int argc, char** argv, const train::ModelFactory& custom_model) {
    keep_freed_memory();
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (const auto answer = immediate_answer(words)) {
        std::fputs(answer->c_str(), stdout);
        return static_cast<int>(ExitCode::kDone);
    }
    try {
        refuse_tasks_without_pmi(process_environment);
    } catch (const UsageError& error) {
        // Every task comes here, and they cannot agree on anything: the first one speaks for all.
        const std::string task = process_environment("SLURM_PROCID");
        if (task.empty() || task == "0")
            std::fputs(fmt::format("fullshard: {}\n", error.what()).c_str(), stderr);
        return static_cast<int>(error.exit_code());
    }
    Process process;
    try {
        process.ledger->allow(kStartTimeoutSeconds);
        process.ledger->enter("MPI_Init");
        comm::MpiSession session(argc, argv);
        process.watchdog.set_process(session.rank(), session.size(), session.host());
        process.ledger->enter("start-up");
        try {
            const ExitCode code = run_command(session, process, argv[0], words, custom_model);
            process.ledger->enter("MPI_Finalize");
            return static_cast<int>(code);
        } catch (const comm::AgreedError& error) {
            if (session.rank() == 0)
                std::fputs(fmt::format("fullshard: {}\n", error.what()).c_str(), stderr);
            return static_cast<int>(error.exit_code());
        }
    } catch (const TimeoutError& error) {
        process.watchdog.end_late_job(error.what());
    } catch (const Error& error) {
        comm::MpiSession::abort(error.what(), static_cast<int>(error.exit_code()));
    } catch (const std::exception& error) {
        comm::MpiSession::abort(error.what(), static_cast<int>(ExitCode::kRunError));
    }
}

}  // namespace fullshard::app
