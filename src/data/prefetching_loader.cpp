#include "data/prefetching_loader.h"

#include "base/error.h"

#include <algorithm>

namespace fullshard::data {

PrefetchingLoader::PrefetchingLoader(const TrainingLoader& loader, const Share& share,
                                     std::int64_t ahead)
    : loader_(loader),
      share_(share),
      ahead_(ahead),
      end_((share.end_step - share.first_step) * share.accumulations),
      slots_(static_cast<std::size_t>(ahead) + 1) {
    ensure(ahead >= 0 && share.accumulations >= 1 && share.first_step >= 0 &&
               share.first_step <= share.end_step && share.rank >= 0 &&
               share.rank < share.world_size,
           "share of a rank makes sense");
    if (ahead > 0) thread_ = std::thread(&PrefetchingLoader::read_ahead, this);
}

PrefetchingLoader::~PrefetchingLoader() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

const TokenBatch& PrefetchingLoader::load(std::int64_t step, std::int64_t accumulation) {
    ensure(step >= share_.first_step && step < share_.end_step && accumulation >= 0 &&
               accumulation < share_.accumulations,
           "micro-batch belongs to the share");
    const std::int64_t wanted = (step - share_.first_step) * share_.accumulations + accumulation;
    Slot& slot = slot_of(wanted);
    {
        std::unique_lock lock(mutex_);
        ensure(wanted > held_, "micro-batches are asked for in order");
        held_ = wanted;
        if (thread_.joinable()) {
            changed_.notify_all();
            changed_.wait(lock, [&] { return next_ > wanted; });
        }
    }
    if (!thread_.joinable()) read(wanted, slot);
    if (slot.error) std::rethrow_exception(slot.error);
    return slot.batch;
}

void PrefetchingLoader::read(std::int64_t number, Slot& slot) const {
    const std::int64_t step = share_.first_step + number / share_.accumulations;
    const std::int64_t accumulation = number % share_.accumulations;
    slot.error = nullptr;
    try {
        loader_.load(step, micro_batch_index(accumulation, share_.rank, share_.world_size),
                     slot.batch);
    } catch (...) {
        slot.error = std::current_exception();
    }
}

void PrefetchingLoader::read_ahead() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return stop_ || (next_ < end_ && next_ <= held_ + ahead_); });
        if (stop_) return;
        next_ = std::max(next_, held_);  // what was passed over is not read
        Slot& slot = slot_of(next_);
        const std::int64_t number = next_;
        lock.unlock();
        read(number, slot);
        lock.lock();
        ++next_;
        changed_.notify_all();
    }
}

}  // namespace fullshard::data
