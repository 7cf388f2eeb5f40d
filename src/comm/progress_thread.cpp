#include "comm/progress_thread.h"

#include "comm/signals_blocked.h"

#include <chrono>

namespace fullshard::comm {

namespace {

/// Between two looks at messages under way: short beside what a message of a megabyte takes on any
/// network, and long beside a look.
constexpr auto kPause = std::chrono::microseconds(20);

}  // namespace

ProgressThread::ProgressThread(std::function<bool()> advance) : advance_(std::move(advance)) {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
}

ProgressThread::~ProgressThread() {
    {
        const std::scoped_lock lock(mutex_);
        ends_ = true;
    }
    wake_.notify_one();
    thread_.join();
}

void ProgressThread::begin() {
    {
        const std::scoped_lock lock(mutex_);
        if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
        computing_ = true;
    }
    wake_.notify_one();
}

void ProgressThread::end() noexcept {
    computing_ = false;  // before the lock: the thread lets go of it sooner
    const std::scoped_lock lock(mutex_);
}

void ProgressThread::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        wake_.wait(lock, [this] { return computing_ || ends_; });
        if (ends_) return;
        try {
            if (!advance_()) computing_ = false;
        } catch (...) {
            error_ = std::current_exception();
            computing_ = false;
        }
        if (!computing_) continue;
        lock.unlock();
        std::this_thread::sleep_for(kPause);
        lock.lock();
    }
}

}  // namespace fullshard::comm
