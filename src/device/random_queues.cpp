#include "device/random_queues.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace fullshard::device {

namespace {
constexpr std::uint64_t kMostEager = 4;
constexpr std::uint64_t kMostBlindPolls = 4;
/// A queue is drawn up to 2^(kWeights - 1) times as often as another.
constexpr std::uint64_t kWeights = 4;

std::size_t index_of(int queue) {
    return static_cast<std::size_t>(queue);
}
}  // namespace

RandomQueues::RandomQueues(std::uint64_t seed)
    : random_(mix(seed, stable_hash("random queues"))), eagerness_(draw(kMostEager + 1)) {}

int RandomQueues::add_queue() {
    Queue queue;
    queue.weight = std::uint64_t{1} << draw(kWeights);
    queues_.push_back(std::move(queue));
    return static_cast<int>(queues_.size()) - 1;
}

void RandomQueues::push(int queue, std::string name, std::function<void()> work) {
    push(queue, Item{std::move(name), std::move(work)});
}

void RandomQueues::push(int queue, std::string name, std::unique_ptr<PolledOperation> work) {
    push(queue,
         Item{std::move(name), Polled{std::move(work), false, false, draw(kMostBlindPolls)}});
}

void RandomQueues::push_wait(int queue, QueueMark mark) {
    push(queue, Item{"wait", mark});
}

void RandomQueues::push(int queue, Item item) {
    throw_failure();
    queues_[index_of(queue)].items.push_back(std::move(item));
    for (std::uint64_t steps = draw(eagerness_ + 1); steps > 0 && step(); --steps) {
    }
}

QueueMark RandomQueues::end(int queue) const {
    const Queue& at = queues_[index_of(queue)];
    return {queue, at.done + static_cast<std::int64_t>(at.items.size())};
}

bool RandomQueues::reached(QueueMark mark) const {
    return queues_[index_of(mark.queue)].done >= mark.length;
}

bool RandomQueues::empty() const {
    return std::ranges::all_of(queues_, [](const Queue& queue) { return queue.items.empty(); });
}

bool RandomQueues::step() {
    throw_failure();
    pass_waits();
    const auto may_run = [](const Queue& queue) {
        return !queue.items.empty() && !std::holds_alternative<QueueMark>(queue.items.front().work);
    };
    std::uint64_t total = 0;
    for (const Queue& queue : queues_) total += may_run(queue) ? queue.weight : 0;
    if (total == 0) return false;
    std::uint64_t left = draw(total);
    for (Queue& queue : queues_) {
        if (!may_run(queue)) continue;
        if (left < queue.weight) {
            execute(queue);
            return true;
        }
        left -= queue.weight;
    }
    return false;
}

/// Takes away the waits at the heads of queues that wait no longer. Passing one may end another.
void RandomQueues::pass_waits() {
    for (bool passed = true; passed;) {
        passed = false;
        for (Queue& queue : queues_) {
            if (queue.items.empty()) continue;
            const auto* const mark = std::get_if<QueueMark>(&queue.items.front().work);
            if (mark == nullptr || !reached(*mark)) continue;
            queue.items.pop_front();
            ++queue.done;
            passed = true;
        }
    }
}

void RandomQueues::execute(Queue& queue) {
    Item& item = queue.items.front();
    try {
        if (auto* const work = std::get_if<std::function<void()>>(&item.work)) {
            executed_.push_back(item.name);
            (*work)();
        } else {
            auto& polled = std::get<Polled>(item.work);
            if (!polled.started) {
                executed_.push_back(item.name);
                polled.started = true;
                polled.work->start();
                return;
            }
            // Polled all the same: other ranks may need this one to advance.
            polled.done = polled.done || polled.work->ready();
            if (!polled.done) return;
            if (polled.blind_polls > 0) {
                --polled.blind_polls;
                return;
            }
        }
    } catch (...) {
        failure_ = std::current_exception();
        throw;
    }
    queue.items.pop_front();
    ++queue.done;
}

void RandomQueues::throw_failure() const {
    if (failure_) std::rethrow_exception(failure_);
}

}  // namespace fullshard::device
