// A picture of some steps: what each rank did when, for ui.perfetto.dev and chrome://tracing.
#pragma once

#include "base/timeline.h"
#include "comm/group.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace fullshard::train {

/// How much communication went on while the rank computed; seconds.
struct Overlap {
    double in_flight_s = 0.0;  ///< any gather or reduction between ranks was under way
    double hidden_s = 0.0;     ///< of that, the rank computed meanwhile

    /// None without communication: ranks that share memory have nothing in flight.
    std::optional<double> fraction() const;
};

/// Of spans of one rank: those of gathers and reductions in flight against those that compute.
Overlap overlap_of(std::span<const Span> spans);

/// One rank's events in the Trace Event Format of Chrome, separated by commas: process `rank`, a
/// thread for each lane. `clock_offset_s` and then `start_s` are taken from all times: where no
/// span begins before `start_s` on the common clock, no event has a negative time, not even by
/// rounding.
std::string trace_events(std::span<const Span> spans, int rank, const std::string& host,
                         double clock_offset_s, double start_s);

/// Records the steps that it is told of and writes them to one file. A step lasts until the next
/// one begins, so that the evaluation and the checkpoint behind it belong to it.
class StepTrace final : public Timeline {
  public:
    /// `steps` count from 1. Calls of the ranks are collective where they say so.
    StepTrace(const comm::Group& world, std::vector<std::int64_t> steps,
              std::filesystem::path file);

    bool recording() const override { return recording_; }
    void add(Span span) override;
    /// Called when a recorded step is over: adds what is only known then.
    void at_end_of_step(std::function<void()> add_rest) { add_rest_ = std::move(add_rest); }

    /// `step` begins now. Collective: behind the last recorded step the file is written.
    void begin_step(std::int64_t step);
    /// No step is left. Collective; the file is written unless it was.
    void finish();

    /// Whether there is a file with anything in it.
    bool written() const { return written_; }
    const std::filesystem::path& file() const { return file_; }
    /// Of this rank.
    const Overlap& overlap() const { return overlap_; }

  private:
    void write();
    void end_step();

    const comm::Group& world_;
    std::vector<std::int64_t> steps_;  ///< ascending
    std::filesystem::path file_;
    std::atomic<bool> recording_ = false;
    std::function<void()> add_rest_ = [] {};
    std::mutex mutex_;
    std::vector<Span> spans_;
    double recorded_since_ = 0.0;
    bool written_ = false;
    Overlap overlap_;
};

}  // namespace fullshard::train
