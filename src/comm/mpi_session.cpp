#include "comm/mpi_session.h"

#include "base/error.h"
#include "comm/mpi_detail.h"
#include "comm/waiter.h"

#include <fmt/format.h>
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

namespace fullshard::comm {

MpiSession::MpiSession(int& argc, char**& argv) {
    int provided = MPI_THREAD_SINGLE;
    check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_SERIALIZED) {
        throw RunError(
            "this MPI library grants no MPI_THREAD_SERIALIZED; use one built with thread support");
    }
    check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
    char name[MPI_MAX_PROCESSOR_NAME] = {};
    int length = 0;
    check_mpi(MPI_Get_processor_name(name, &length), "MPI_Get_processor_name");
    host_.assign(name, static_cast<std::size_t>(length));
    set_process_name(fmt::format("rank {} on {}", rank_, host_));
}

MpiSession::~MpiSession() {
    if (std::uncaught_exceptions() == 0) MPI_Finalize();
}

std::string MpiSession::thread_level() const {
    int granted = MPI_THREAD_SINGLE;
    check_mpi(MPI_Query_thread(&granted), "MPI_Query_thread");
    if (granted == MPI_THREAD_MULTIPLE) return "MPI_THREAD_MULTIPLE";
    if (granted == MPI_THREAD_SERIALIZED) return "MPI_THREAD_SERIALIZED";
    return granted == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SINGLE";
}

namespace {

bool mpi_runs() {
    int initialized = 0;
    int finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    return initialized != 0 && finalized == 0;
}

/// From here on a signal ends the process, as the launcher wants when another rank has aborted.
void give_up_signals() {
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGALRM})
        std::signal(signal, SIG_DFL);
}

}  // namespace

void MpiSession::abort(const std::string& cause, int exit_code) {
    give_up_signals();
    if (mpi_runs()) {
        // When a peer is late, all others notice at once. The lowest of them speaks and ends the
        // job before the next one would: one cause line instead of one a rank.
        constexpr auto kHeadStart = std::chrono::milliseconds(200);
        int rank = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        std::this_thread::sleep_for(kHeadStart * std::min(rank, 10));
    }
    end_job(fmt::format("{}: {}", process_name(), cause), exit_code);
}

void MpiSession::end_job(const std::string& line, int exit_code) {
    give_up_signals();
    std::fputs(fmt::format("fullshard: {}\n", line).c_str(), stderr);
    std::fflush(stderr);
    if (mpi_runs()) {
        // Whatever state MPI is in: this process ends.
        constexpr unsigned kSecondsToAbort = 5;
        ::alarm(kSecondsToAbort);
        MPI_Abort(MPI_COMM_WORLD, exit_code);
    }
    std::_Exit(exit_code);
}

}  // namespace fullshard::comm
