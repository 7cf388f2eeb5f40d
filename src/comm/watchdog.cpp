#include "comm/watchdog.h"

#include "base/clock.h"
#include "base/files.h"
#include "comm/hang_report.h"
#include "comm/mpi_session.h"
#include "comm/signals_blocked.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

namespace fullshard::comm {

namespace {

constexpr auto kInterval = std::chrono::milliseconds(250);
/// Between two rounds of the thread; more than this and the process was not running.
constexpr double kLongestRound = 2.0;  // seconds
/// A rank that noticed first waits so long for the others' reports, and so much longer for a lower
/// rank to speak.
constexpr double kGatherSeconds = 4.0;

}  // namespace

Watchdog::Watchdog(std::shared_ptr<Ledger> ledger) : ledger_(std::move(ledger)) {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
    {
        const std::scoped_lock lock(mutex_);
        stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
}

void Watchdog::set_process(int rank, int ranks, std::string host) {
    const std::scoped_lock lock(mutex_);
    process_.rank = rank;
    process_.ranks = ranks;
    process_.host = std::move(host);
}

void Watchdog::set_report_folder(std::filesystem::path folder) {
    const std::scoped_lock lock(mutex_);
    process_.folder = std::move(folder);
}

Watchdog::Registration::Registration(Watchdog& watchdog, Check check) : watchdog_(watchdog) {
    const std::scoped_lock lock(watchdog.mutex_);
    position_ = watchdog.checks_.insert(watchdog.checks_.end(), std::move(check));
}

Watchdog::Registration::~Registration() {
    const std::scoped_lock lock(watchdog_.mutex_);
    watchdog_.checks_.erase(position_);
}

Watchdog::Process Watchdog::process() const {
    const std::scoped_lock lock(mutex_);
    return process_;
}

bool Watchdog::others_have_reported(const Process& self) const {
    std::error_code error;
    return !self.folder.empty() && std::filesystem::exists(self.folder, error);
}

void Watchdog::watch() {
    double last = now_seconds();
    std::unique_lock lock(mutex_);
    while (!stop_) {
        wake_.wait_for(lock, kInterval);
        if (stop_) return;
        const double now = now_seconds();
        if (now - last > kLongestRound) ledger_->forgive(now - last);
        last = now;
        for (const Check& check : checks_) {
            const auto verdict = check();
            if (!verdict) continue;
            lock.unlock();
            ending_.lock();
            MpiSession::abort(verdict->cause, static_cast<int>(verdict->code));
        }
        const double quiet = ledger_->quiet_s();
        const double allowed = ledger_->allowed_s();
        if (quiet < allowed / 2) continue;
        lock.unlock();
        if (quiet > allowed || others_have_reported(process())) end_late_job("");
        lock.lock();
    }
}

void Watchdog::end_late_job(const std::string& cause) {
    ending_.lock();
    const Process self = process();
    RankReport report = ledger_->report();
    report.rank = self.rank;
    report.host = self.host;
    const std::string own_view =
        !cause.empty()
            ? cause
            : fmt::format("nothing has moved for {:.0f} s in {}{}", report.quiet_s, report.activity,
                          report.waits ? ", waiting in " + report.waits_for : "");
    constexpr int kCode = static_cast<int>(ExitCode::kCommunication);
    if (self.folder.empty()) MpiSession::abort(own_view, kCode);
    try {
        write_report(self.folder, report);
        std::vector<RankReport> all;
        const auto gather = [&](auto&& enough) {
            const double deadline = now_seconds() + kGatherSeconds;
            do {
                all = read_reports(self.folder);
                if (enough()) return;
                std::this_thread::sleep_for(kInterval);
            } while (now_seconds() < deadline);
        };
        gather([&] { return static_cast<int>(all.size()) == self.ranks; });
        // A lower rank speaks and ends the job, this process with it.
        if (!all.empty() && all.front().rank < self.rank) gather([] { return false; });
        const std::string line = explain_hang(all, self.ranks);
        write_file_atomically(self.folder / "cause.txt", line + '\n');
        MpiSession::end_job(line, kCode);
    } catch (const std::exception& error) {
        MpiSession::abort(fmt::format("{} (no report: {})", own_view, error.what()), kCode);
    }
}

}  // namespace fullshard::comm
