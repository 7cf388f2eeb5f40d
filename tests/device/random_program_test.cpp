// Random programs of operations, events and waits: what the checked device says of them is what a
// search through the graph of their edges says, and legal ones compute what immediate execution
// does.
#include "base/error.h"
#include "base/rng.h"
#include "device/checked_device.h"
#include "device/host_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace fullshard::device {
namespace {

constexpr int kStreams = 3;
constexpr int kEvents = 3;
constexpr std::int64_t kFloats = 12;
constexpr int kLength = 24;

const HostWait kPatient{.timeout_s = 10.0};

struct Range {
    std::int64_t begin = 0;
    std::int64_t length = 0;

    bool overlaps(const Range& other) const {
        return std::max(begin, other.begin) < std::min(begin + length, other.begin + other.length);
    }
};

enum class Kind { kRun, kRecord, kWait, kHostWait, kHostAccess };

struct Instruction {
    Kind kind = Kind::kRun;
    int stream = 0;
    int event = 0;
    Range read;
    Range write;  ///< of kHostAccess too
};

using Program = std::vector<Instruction>;

Program draw_program(std::uint64_t seed) {
    const RandomStream random(mix(seed, 17));
    std::uint64_t drawn = 0;
    const auto below = [&](int bound) {
        return static_cast<int>(random.below(drawn++, static_cast<std::uint64_t>(bound)));
    };
    const auto range = [&] {
        const int begin = below(kFloats);
        return Range{begin, below(std::min(4, static_cast<int>(kFloats) - begin) + 1)};
    };
    Program program;
    for (int i = 0; i < kLength; ++i) {
        constexpr std::array kKinds{Kind::kRun,    Kind::kRun,  Kind::kRun,      Kind::kRecord,
                                    Kind::kRecord, Kind::kWait, Kind::kWait,     Kind::kWait,
                                    Kind::kWait,   Kind::kWait, Kind::kHostWait, Kind::kHostAccess};
        const Kind kind = kKinds[static_cast<std::size_t>(below(kKinds.size()))];
        program.push_back({kind, below(kStreams), below(kEvents), range(), range()});
    }
    return program;
}

/// The number of the first instruction that conflicts with an earlier one it is not ordered after:
/// by reachability in the graph of instructions, without clocks.
std::optional<std::size_t> first_race(const Program& program) {
    std::vector<std::vector<bool>> before(program.size());  // [i][j]: j is done before i
    std::array<std::optional<std::size_t>, kStreams> last;
    std::array<std::optional<std::size_t>, kEvents> recorded;
    std::optional<std::size_t> host;
    for (std::size_t i = 0; i < program.size(); ++i) {
        const Instruction& now = program[i];
        before[i].assign(program.size(), false);
        const auto follow = [&](std::optional<std::size_t> earlier) {
            if (!earlier) return;
            before[i][*earlier] = true;
            for (std::size_t j = 0; j < *earlier; ++j)
                if (before[*earlier][j]) before[i][j] = true;
        };
        const bool of_host = now.kind == Kind::kHostWait || now.kind == Kind::kHostAccess;
        auto& line = of_host ? host : last[static_cast<std::size_t>(now.stream)];
        auto& event = recorded[static_cast<std::size_t>(now.event)];
        follow(line);
        follow(host);
        if (now.kind == Kind::kWait || now.kind == Kind::kHostWait) follow(event);
        if (now.kind == Kind::kRecord) event = i;
        line = i;
        if (now.kind != Kind::kRun && now.kind != Kind::kHostAccess) continue;
        for (std::size_t j = 0; j < i; ++j) {
            const Instruction& then = program[j];
            if ((then.kind != Kind::kRun && then.kind != Kind::kHostAccess) || before[i][j])
                continue;
            if (now.read.overlaps(then.write) || now.write.overlaps(then.write) ||
                now.write.overlaps(then.read))
                return i;
        }
    }
    return std::nullopt;
}

/// Any function of what it reads and wrote before would do.
void compute(std::span<const float> read, std::span<float> write, float salt) {
    float sum = salt;
    for (const float value : read) sum += 0.5F * value;
    for (float& value : write) value = 0.25F * value + sum;
}

/// Runs it up to the first refusal; what it computed in `values`.
std::optional<std::size_t> run(Device& device, const Program& program, std::vector<float>& values) {
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::unique_ptr<Event>> events;
    for (int i = 0; i < kStreams; ++i) streams.push_back(device.make_stream("stream"));
    for (int i = 0; i < kEvents; ++i) events.push_back(device.make_event());
    const Buffer buffer = device.allocate("values", kFloats * 4);
    const TypedSpan all = buffer.typed(DType::kFloat32);
    streams[0]->zero(all);
    device.synchronize(kPatient);
    for (std::size_t i = 0; i < program.size(); ++i) {
        const Instruction& now = program[i];
        Stream& stream = *streams[static_cast<std::size_t>(now.stream)];
        Event& event = *events[static_cast<std::size_t>(now.event)];
        const TypedSpan read = all.part(now.read.begin, now.read.length);
        const TypedSpan write = all.part(now.write.begin, now.write.length);
        const Access access{"operation", {&read, 1}, {&write, 1}};
        const auto work = [read, write, i] {
            compute(read.as<float>(), write.as<float>(), static_cast<float>(i));
        };
        try {
            switch (now.kind) {
                case Kind::kRun:
                    stream.run(access, work);
                    break;
                case Kind::kRecord:
                    stream.record(event);
                    break;
                case Kind::kWait:
                    stream.wait(event);
                    break;
                case Kind::kHostWait:
                    device.wait(event, kPatient);
                    break;
                case Kind::kHostAccess:
                    device.host_access(access);
                    work();
                    break;
            }
        } catch (const LogicError&) {
            return i;
        }
    }
    device.synchronize(kPatient);
    const std::span<const float> result = all.as<float>();
    values.assign(result.begin(), result.end());
    return std::nullopt;
}

TEST(RandomPrograms, AreRefusedWhereTheGraphHasNoPathAndEqualImmediateExecutionElsewhere) {
    int legal = 0;
    int illegal = 0;
    for (std::uint64_t seed = 0; legal < 200 || illegal < 200; ++seed) {
        ASSERT_LT(seed, 20000U);
        const Program program = draw_program(seed);
        const std::optional<std::size_t> race = first_race(program);
        int& count = race ? illegal : legal;
        if (++count > 200) continue;
        std::vector<float> found;
        std::vector<float> expected;
        CheckedDevice checked(seed);
        ASSERT_EQ(run(checked, program, found), race) << "program " << seed;
        if (race) continue;
        HostDevice host;
        run(host, program, expected);
        ASSERT_EQ(found, expected) << "program " << seed;
    }
}

/// Wherever an edge is missing and the checker is not told of the access, some seed must show the
/// wrong result: random order finds what declarations leave out.
TEST(RandomPrograms, AnUndeclaredRaceChangesResults) {
    int wrong = 0;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        CheckedDevice device(seed);
        const auto first = device.make_stream("first");
        const auto second = device.make_stream("second");
        std::vector<int> order;
        first->run({"writes"}, [&] { order.push_back(1); });
        second->run({"reads"}, [&] { order.push_back(2); });
        device.synchronize(kPatient);
        wrong += order == std::vector{2, 1} ? 1 : 0;
    }
    EXPECT_GT(wrong, 10);
    EXPECT_LT(wrong, 80);
}

}  // namespace
}  // namespace fullshard::device
