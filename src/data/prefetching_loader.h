// One rank's micro-batches, read ahead while it computes.
#pragma once

#include "data/loader.h"

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace fullshard::data {

/// Hands a rank its micro-batches in training order: accumulation 0, 1, ... of a step, then of the
/// next one. A thread reads up to `ahead` of them before they are asked for; what it reads does not
/// depend on it. The loader it reads from outlives it.
class PrefetchingLoader {
  public:
    /// What a rank takes: steps [first_step, end_step), in each of them accumulations
    /// [0, accumulations).
    struct Share {
        std::int64_t rank = 0;
        std::int64_t world_size = 1;
        std::int64_t accumulations = 1;
        std::int64_t first_step = 0;
        std::int64_t end_step = 0;
    };

    /// With `ahead` = 0 there is no thread: load() reads itself.
    PrefetchingLoader(const TrainingLoader& loader, const Share& share, std::int64_t ahead);
    /// Ends the thread, after the micro-batch that it is reading.
    ~PrefetchingLoader();
    PrefetchingLoader(const PrefetchingLoader&) = delete;
    PrefetchingLoader& operator=(const PrefetchingLoader&) = delete;

    /// A micro-batch of the share; the reference holds until the next call. Requests only go
    /// forward; micro-batches may be passed over. Rethrows what reading it threw. Allocates nothing
    /// once all buffers have been used.
    const TokenBatch& load(std::int64_t step, std::int64_t accumulation);

  private:
    struct Slot {
        TokenBatch batch;
        std::exception_ptr error;
    };

    void read(std::int64_t number, Slot& slot) const;
    void read_ahead();
    Slot& slot_of(std::int64_t number) {
        return slots_[static_cast<std::size_t>(number) % slots_.size()];
    }

    const TrainingLoader& loader_;
    const Share share_;
    const std::int64_t ahead_;
    const std::int64_t end_;   ///< micro-batches of the share
    std::vector<Slot> slots_;  ///< the one handed out and those ahead of it

    std::mutex mutex_;  ///< guards the rest, and hands slots over
    std::condition_variable changed_;
    std::int64_t held_ = -1;  ///< handed out last: its slot is left alone
    std::int64_t next_ = 0;   ///< that the thread reads; those of (held_, next_) are in slots
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace fullshard::data
