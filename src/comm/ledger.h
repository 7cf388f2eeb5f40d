// What this process asked of other ranks, and what it waits for: read by the watchdog.
#pragma once

#include "base/timeline.h"

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fullshard::comm {

/// A collective call as every rank of its group must make it. The texts are literals: noting a call
/// allocates nothing.
struct Call {
    std::string_view kind;    ///< "all_gather"
    std::int64_t count = 0;   ///< elements, as the call counts them
    std::string_view type{};  ///< of the elements: "fp32"; empty where there are none
    int root = -1;            ///< of a broadcast

    /// "broadcast of 12 bytes from rank 0"
    std::string describe() const;
};

/// What a process waits for.
struct Wait {
    std::int64_t track = -1;     ///< see Ledger; -1: the wait belongs to none
    std::int64_t sequence = 0;   ///< of the call in its track
    std::string what;            ///< "all_gather of 1024 fp32"
    std::vector<int> missing{};  ///< ranks of the job known to be late; empty: unknown
};

/// Where a process is, in a form that other ranks can compare with theirs. Ranks are those of the
/// job (MPI_COMM_WORLD).
struct RankReport {
    struct Track {
        std::string name;
        std::vector<int> members;
        std::int64_t calls = 0;  ///< begun so far
        std::string last;        ///< the last of them
    };

    int rank = 0;
    std::string host;
    std::string activity;  ///< "training step 17"
    double quiet_s = 0.0;  ///< since it last called or was answered
    bool waits = false;    ///< on other ranks; the four below say on what
    std::string waits_in;  ///< the track's name; empty where it has none
    std::int64_t sequence = 0;
    std::string waits_for;
    std::vector<int> missing;
    std::vector<Track> tracks;
};

/// One a process, shared by its groups. A track is a sequence of calls that a fixed set of ranks
/// makes in the same order: a group's control calls, or one channel of a communicator. All calls
/// are thread-safe; none is collective.
class Ledger {
  public:
    static constexpr double kUnlimited = std::numeric_limits<double>::infinity();

    Ledger();
    Ledger(const Ledger&) = delete;
    Ledger& operator=(const Ledger&) = delete;

    std::int64_t add_track(std::string name, std::vector<int> members);
    void remove_track(std::int64_t track);
    /// Notes a call that is about to be made; its number in the track, from 1.
    std::int64_t begin(std::int64_t track, const Call& call);
    /// Tells the timeline, if there is one that records, of a call that is complete.
    void end(std::int64_t track, const Call& call, double begun_s);
    /// Null: none. It must outlive its use here.
    void show_on(Timeline* timeline) { timeline_ = timeline; }

    void waits(Wait wait);  ///< may be told again while the wait lasts
    void waits_no_more();

    /// The process begins something that is no call: `activity` is a literal, `number` is left out
    /// of the text when negative.
    void enter(const char* activity, std::int64_t number = -1);
    /// How long the process may be quiet from here on: without a call, an answer, or `enter`.
    void allow(double seconds);
    double allowed_s() const;

    double quiet_s() const;
    /// Time in which the process was not running (stopped by a scheduler) does not count.
    void forgive(double seconds);
    /// Without rank and host.
    RankReport report() const;

    /// A call in which the process cannot tell how long it has waited.
    class Blocking {
      public:
        Blocking(Ledger& ledger, Wait wait) : ledger_(ledger) { ledger_.waits(std::move(wait)); }
        ~Blocking() { ledger_.waits_no_more(); }
        Blocking(const Blocking&) = delete;
        Blocking& operator=(const Blocking&) = delete;

      private:
        Ledger& ledger_;
    };

    /// While it lives, the process may be quiet for at least `seconds`.
    class Patience {
      public:
        Patience(Ledger& ledger, double seconds);
        ~Patience() { ledger_.allow(before_); }
        Patience(const Patience&) = delete;
        Patience& operator=(const Patience&) = delete;

      private:
        Ledger& ledger_;
        double before_;
    };

  private:
    struct Track {
        std::string name;
        std::vector<int> members;  ///< empty: removed
        std::int64_t calls = 0;
        Call last;
    };
    void touch();

    mutable std::mutex mutex_;
    std::vector<Track> tracks_;
    bool waiting_ = false;
    Wait wait_;
    const char* activity_ = "start-up";
    std::int64_t number_ = -1;
    double allowed_s_ = kUnlimited;
    double last_event_;
    std::atomic<Timeline*> timeline_ = nullptr;
};

/// "0-3, 8": ascending numbers with runs folded.
std::string rank_list(const std::vector<int>& ranks);

}  // namespace fullshard::comm
