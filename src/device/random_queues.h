// Queues of operations that run one at a time, in an order drawn from a seed.
#pragma once

#include "base/rng.h"
#include "device/device.h"

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace fullshard::device {

/// A place in a queue: reached when `length` of its operations are done.
struct QueueMark {
    int queue = 0;
    std::int64_t length = 0;
};

/// Executes what a device with concurrent streams might execute, on the calling thread. Each queue
/// keeps its order, nothing passes a wait, and every other order is possible: the seed decides
/// which queues lag, how far the host runs ahead, and how late a polled operation is noticed to be
/// done. An operation that throws ends the use of the queues: later calls throw the same error.
class RandomQueues {
  public:
    explicit RandomQueues(std::uint64_t seed);

    int add_queue();
    /// Each also executes a few operations of any queue that may run.
    void push(int queue, std::string name, std::function<void()> work);
    void push(int queue, std::string name, std::unique_ptr<PolledOperation> work);
    void push_wait(int queue, QueueMark mark);
    QueueMark end(int queue) const;

    bool reached(QueueMark mark) const;
    /// Runs or polls one operation that may run; false where there is none.
    bool step();
    bool empty() const;
    /// Names of what was executed, in its order; a polled operation counts when it is started.
    const std::vector<std::string>& executed() const { return executed_; }

  private:
    struct Polled {
        std::unique_ptr<PolledOperation> work;
        bool started = false;
        bool done = false;
        std::uint64_t blind_polls = 0;  ///< steps for which its end goes unnoticed
    };
    struct Item {
        std::string name;
        std::variant<std::function<void()>, Polled, QueueMark> work;
    };
    struct Queue {
        std::deque<Item> items;
        std::int64_t done = 0;
        std::uint64_t weight = 1;  ///< of being drawn
    };

    std::uint64_t draw(std::uint64_t bound) { return random_.below(drawn_++, bound); }
    void push(int queue, Item item);
    void pass_waits();
    void execute(Queue& queue);
    void throw_failure() const;

    RandomStream random_;
    std::uint64_t drawn_ = 0;
    std::uint64_t eagerness_;  ///< most operations executed after one is enqueued
    std::deque<Queue> queues_;
    std::vector<std::string> executed_;
    std::exception_ptr failure_;
};

}  // namespace fullshard::device
