// Ends a job that would otherwise stand still for ever, and says why.
#pragma once

#include "base/error.h"
#include "comm/ledger.h"

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace fullshard::comm {

/// A thread that watches the ledger. When the process has been quiet for longer than the ledger
/// allows, or a wait for other ranks has failed, each rank that notices writes a report; a rank
/// that has been quiet for half of its time looks whether others have written theirs, and adds its
/// own. The lowest rank that has one then reads them all, prints one line that names the rank to
/// blame, and ends the job with ExitCode::kCommunication.
class Watchdog {
  public:
    /// A reason of another kind to end the job at once.
    struct Verdict {
        std::string cause;
        ExitCode code;
    };
    using Check = std::function<std::optional<Verdict>()>;

    /// While it lives, a check is asked four times a second, in the watchdog's thread.
    class Registration {
      public:
        Registration(Watchdog& watchdog, Check check);
        ~Registration();
        Registration(const Registration&) = delete;
        Registration& operator=(const Registration&) = delete;

      private:
        Watchdog& watchdog_;
        std::list<Check>::iterator position_;
    };

    /// Give it the ledger before MPI starts; the deadline is the ledger's.
    explicit Watchdog(std::shared_ptr<Ledger> ledger);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    /// Once MPI runs: who this process is, in the job.
    void set_process(int rank, int ranks, std::string host);
    /// Where reports go from here on: a folder that all ranks see, not there before a hang. Until
    /// then each rank speaks for itself.
    void set_report_folder(std::filesystem::path folder);

    /// For the thread that gave up waiting: reports, and ends the job. `cause` is what is said
    /// where there is no folder for reports; empty: what the ledger knows.
    [[noreturn]] void end_late_job(const std::string& cause);

  private:
    struct Process {
        int rank = 0;
        int ranks = 0;  ///< 0: MPI does not run
        std::string host;
        std::filesystem::path folder;
    };

    void watch();
    Process process() const;
    bool others_have_reported(const Process& self) const;
    std::shared_ptr<Ledger> ledger_;
    mutable std::mutex mutex_;
    std::condition_variable wake_;
    bool stop_ = false;
    Process process_;
    std::list<Check> checks_;
    std::mutex ending_;  ///< held for good by the thread that ends the job
    std::thread thread_;
};

}  // namespace fullshard::comm
