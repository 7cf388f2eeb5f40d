// A thread that moves messages while its rank computes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace fullshard::comm {

/// MPI moves large messages only inside its calls, so what a rank has under way with other nodes
/// stands still while it computes, unless a thread makes such calls for it. Thread and rank take
/// turns: the thread works only while the rank has said, by a Computing, that it computes. That
/// asks no more of MPI than MPI_THREAD_SERIALIZED, and nothing else needs a lock.
class ProgressThread {
  public:
    /// `advance` goes as far as it can without waiting and returns whether anything is still under
    /// way. An exception of it is thrown where the rank next begins to compute.
    explicit ProgressThread(std::function<bool()> advance);
    ~ProgressThread();
    ProgressThread(const ProgressThread&) = delete;
    ProgressThread& operator=(const ProgressThread&) = delete;

    /// While it lives the rank neither calls MPI nor touches what `advance` touches. Its end waits
    /// for a call of `advance` that has begun, and shows the rank what was done.
    class Computing {
      public:
        Computing() = default;  ///< nothing advances
        explicit Computing(ProgressThread& thread) : thread_(&thread) { thread.begin(); }
        Computing(Computing&& other) noexcept : thread_(std::exchange(other.thread_, nullptr)) {}
        Computing& operator=(Computing&&) = delete;
        ~Computing() {
            if (thread_ != nullptr) thread_->end();
        }

      private:
        ProgressThread* thread_ = nullptr;
    };

  private:
    void begin();
    void end() noexcept;
    void run();

    std::function<bool()> advance_;
    std::mutex mutex_;  ///< held while `advance` runs
    std::condition_variable wake_;
    std::atomic<bool> computing_ = false;  ///< the rank, and something is under way
    bool ends_ = false;
    std::exception_ptr error_;
    std::thread thread_;
};

}  // namespace fullshard::comm
