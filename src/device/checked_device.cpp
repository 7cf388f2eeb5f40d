#include "device/checked_device.h"

#include "base/clock.h"
#include "base/error.h"
#include "device/access_checker.h"
#include "device/host_memory.h"
#include "device/random_queues.h"

#include <fmt/format.h>
#include <sched.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

namespace fullshard::device {

namespace {
/// Every bit set is a NaN of each floating-point type.
constexpr std::byte kNan{0xFF};

/// What an event marks. The clock holds the timelines that existed when it was recorded.
struct Mark {
    QueueMark place;
    VectorClock past;
    std::string stream;
};

/// Written by the stream when it passes the event, later than the record.
struct Passing {
    double time_s = 0.0;
};
}  // namespace

class CheckedDevice::State {
  public:
    explicit State(std::uint64_t seed) : queues(seed) {}
    ~State() {
        for (std::byte* memory : allocated) std::free(memory);
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    /// Throws what a destructor found and could not throw.
    void throw_violation() {
        if (auto found = std::exchange(violation, std::nullopt)) throw LogicError(*found);
    }

    /// Whether the wait that is about to be made has an effect.
    bool counts(const std::string& waiter, const std::optional<Mark>& mark) {
        const auto number = static_cast<std::int64_t>(waits.size());
        waits.push_back(fmt::format("{} for {}", waiter, mark ? mark->stream : "nothing"));
        return mark && !broken_waits.contains(number);
    }

    void free(std::byte* memory, std::int64_t bytes) noexcept {
        try {
            checker.remove_memory(memory);
        } catch (const LogicError& error) {
            if (!violation) violation = error.what();
        }
        std::memset(memory, std::to_integer<int>(kNan), static_cast<std::size_t>(bytes));
    }

    template <typename Reached>
    void run_until(const Reached& reached, const HostWait& how) {
        const double begin = now_seconds();
        while (!reached()) {
            const bool ran = queues.step();
            if (reached()) return;
            ensure(ran, "what is waited for can run");
            if (how.idle) how.idle();
            if (now_seconds() - begin > how.timeout_s)
                throw TimeoutError(
                    fmt::format("work on the device was not done within {} s", how.timeout_s));
            sched_yield();  // a polled operation may need other processes
        }
    }

    RandomQueues queues;
    AccessChecker checker;
    std::vector<std::byte*> allocated;
    std::vector<std::string> waits;
    std::set<std::int64_t> broken_waits;
    std::optional<std::string> violation;
    std::int64_t created = 0;
};

namespace {

using State = CheckedDevice::State;

class CheckedEvent final : public Event {
  public:
    CheckedEvent(std::shared_ptr<State> state, EventUse use)
        : state_(std::move(state)), timed_(use == EventUse::kTiming) {}

    bool reached() const override {
        if (!mark_) return true;
        state_->queues.step();  // time passes on a device while the host looks
        if (!state_->queues.reached(mark_->place)) return false;
        state_->checker.join(AccessChecker::kHost, mark_->past);
        return true;
    }
    double seconds_since(const Event& earlier) const override {
        const auto& other = static_cast<const CheckedEvent&>(earlier);
        ensure(timed_ && other.timed_, "both events were made for timing");
        return passing_->time_s - other.passing_->time_s;
    }

    void record(Mark mark) { mark_ = std::move(mark); }
    const std::optional<Mark>& mark() const { return mark_; }
    const std::shared_ptr<Passing>& passing() const { return passing_; }

  private:
    std::shared_ptr<State> state_;
    bool timed_;
    std::optional<Mark> mark_;
    std::shared_ptr<Passing> passing_ = std::make_shared<Passing>();
};

const CheckedEvent& checked(const Event& event) {
    return static_cast<const CheckedEvent&>(event);
}

class CheckedStream final : public Stream {
  public:
    CheckedStream(std::shared_ptr<State> state, std::string name)
        : Stream(std::move(name)),
          state_(std::move(state)),
          title_(fmt::format("stream '{}'", this->name())),
          queue_(state_->queues.add_queue()),
          timeline_(state_->checker.add_timeline(title_)) {}

    void* native() const override { return nullptr; }

    void record(Event& event) override {
        begin();
        auto& target = static_cast<CheckedEvent&>(event);
        state_->queues.push(queue_, "record",
                            [passing = target.passing()] { passing->time_s = now_seconds(); });
        target.record({state_->queues.end(queue_), state_->checker.now(timeline_), title_});
    }

    void wait(const Event& event) override {
        begin();
        const std::optional<Mark>& mark = checked(event).mark();
        if (!state_->counts(title_, mark)) return;
        state_->checker.join(timeline_, mark->past);
        state_->queues.push_wait(queue_, mark->place);
    }

    void copy(TypedSpan from, TypedSpan to) override {
        check_copy(from, to);
        run({"copy", {&from, 1}, {&to, 1}}, [from, to] {
            if (from.count != 0)
                std::memcpy(to.data, from.data, static_cast<std::size_t>(from.bytes()));
        });
    }

    void fill(TypedSpan memory, std::byte value) override {
        run({"fill", {}, {&memory, 1}}, [memory, value] {
            if (memory.count != 0)
                std::memset(memory.data, std::to_integer<int>(value),
                            static_cast<std::size_t>(memory.bytes()));
        });
    }

    void run(const Access& access, std::function<void()> work) override {
        begin();
        state_->checker.operation(timeline_, access);
        state_->queues.push(queue_, std::string(access.name), std::move(work));
    }

    void run(const Access& access, std::unique_ptr<PolledOperation> work) override {
        begin();
        state_->checker.operation(timeline_, access);
        state_->queues.push(queue_, std::string(access.name), std::move(work));
    }

  private:
    /// What the host did or waited for comes before what it enqueues now.
    void begin() {
        state_->throw_violation();
        state_->checker.join(timeline_, state_->checker.now(AccessChecker::kHost));
    }

    std::shared_ptr<State> state_;
    std::string title_;
    int queue_;
    int timeline_;
};

}  // namespace

CheckedDevice::CheckedDevice(std::uint64_t seed)
    : seed_(seed), state_(std::make_shared<State>(seed)) {}

CheckedDevice::~CheckedDevice() = default;

std::string CheckedDevice::describe() const {
    return fmt::format("checked host memory, seed {}", seed_);
}

MemoryInfo CheckedDevice::memory() const {
    return host_memory_info();
}

Buffer CheckedDevice::allocate(std::string_view name, std::int64_t bytes, Placement) {
    state_->throw_violation();
    std::byte* const memory = allocate_host(name, bytes, kNan);
    state_->allocated.push_back(memory);
    state_->checker.add_memory(memory, bytes, std::string(name));
    ++state_->created;
    return {{memory, [state = state_, bytes](std::byte* freed) { state->free(freed, bytes); }},
            bytes,
            DeviceKind::kHost};
}

std::unique_ptr<Stream> CheckedDevice::make_stream(std::string name, Priority) {
    ++state_->created;
    return std::make_unique<CheckedStream>(state_, std::move(name));
}

std::unique_ptr<Event> CheckedDevice::make_event(EventUse use) {
    ++state_->created;
    return std::make_unique<CheckedEvent>(state_, use);
}

std::int64_t CheckedDevice::created() const {
    return state_->created;
}

void CheckedDevice::wait(const Event& event, const HostWait& how) {
    state_->throw_violation();
    const std::optional<Mark>& mark = checked(event).mark();
    if (!state_->counts("the host", mark)) return;
    state_->run_until([&] { return state_->queues.reached(mark->place); }, how);
    state_->checker.join(AccessChecker::kHost, mark->past);
}

void CheckedDevice::synchronize(const HostWait& how) {
    state_->throw_violation();
    state_->run_until([&] { return state_->queues.empty(); }, how);
    state_->checker.join_all_to_host();
}

void CheckedDevice::progress() {
    state_->queues.step();
}

void CheckedDevice::host_access(const Access& access) {
    state_->throw_violation();
    state_->checker.operation(AccessChecker::kHost, access);
}

const std::vector<std::string>& CheckedDevice::waits() const {
    return state_->waits;
}

void CheckedDevice::break_wait(std::int64_t number) {
    ensure(number >= static_cast<std::int64_t>(state_->waits.size()),
           "the wait to break is still to come");
    state_->broken_waits.insert(number);
}

const std::vector<std::string>& CheckedDevice::executed() const {
    return state_->queues.executed();
}

}  // namespace fullshard::device
