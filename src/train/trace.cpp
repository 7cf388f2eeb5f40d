#include "train/trace.h"

#include "base/clock.h"
#include "base/files.h"
#include "base/host_name.h"
#include "comm/agree.h"
#include "comm/clock_offsets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace fullshard::train {

namespace {

/// Half-open pieces of time.
using Pieces = std::vector<std::pair<double, double>>;

/// Ascending and apart.
Pieces united(Pieces pieces) {
    std::ranges::sort(pieces);
    Pieces result;
    for (const auto& [begin, end] : pieces) {
        if (!result.empty() && begin <= result.back().second) {
            result.back().second = std::max(result.back().second, end);
        } else {
            result.emplace_back(begin, end);
        }
    }
    return result;
}

/// Seconds that are in both; each is ascending and apart.
double common(const Pieces& a, const Pieces& b) {
    double seconds = 0.0;
    for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
        seconds +=
            std::max(0.0, std::min(a[i].second, b[j].second) - std::max(a[i].first, b[j].first));
        a[i].second < b[j].second ? ++i : ++j;
    }
    return seconds;
}

std::string_view name_of(Lane lane) {
    switch (lane) {
        case Lane::kCompute:
            return "compute";
        case Lane::kGather:
            return "gather";
        case Lane::kReduce:
            return "reduce";
        case Lane::kOptimizer:
            return "optimizer";
        case Lane::kCheckpoint:
            return "checkpoint";
        case Lane::kOther:
            break;
    }
    return "other";
}

constexpr std::array kLanes{Lane::kCompute,   Lane::kGather,     Lane::kReduce,
                            Lane::kOptimizer, Lane::kCheckpoint, Lane::kOther};

}  // namespace

std::optional<double> Overlap::fraction() const {
    if (in_flight_s <= 0.0) return std::nullopt;
    return hidden_s / in_flight_s;
}

Overlap overlap_of(std::span<const Span> spans) {
    Pieces flights, computing;
    for (const Span& span : spans) {
        const bool moves = span.lane == Lane::kGather || span.lane == Lane::kReduce;
        if (moves && span.in_flight) flights.emplace_back(span.begin_s, span.end_s);
        if (span.lane == Lane::kCompute) computing.emplace_back(span.begin_s, span.end_s);
    }
    flights = united(std::move(flights));
    Overlap overlap;
    for (const auto& [begin, end] : flights) overlap.in_flight_s += end - begin;
    overlap.hidden_s = common(flights, united(std::move(computing)));
    return overlap;
}

std::string trace_events(std::span<const Span> spans, int rank, const std::string& host,
                         double clock_offset_s, double start_s) {
    std::string text;
    const auto append = [&](const nlohmann::ordered_json& event) {
        if (!text.empty()) text += ",\n";
        text += event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    };
    const auto call = [&](const char* what, int thread, const std::string& name) {
        append({{"name", what},
                {"ph", "M"},
                {"pid", rank},
                {"tid", thread},
                {"args", {{"name", name}}}});
    };
    call("process_name", 0, fmt::format("rank {} on {}", rank, host));
    for (const Lane lane : kLanes) {
        call("thread_name", static_cast<int>(lane), std::string(name_of(lane)));
    }
    const auto microseconds = [&](double seconds) {
        return 1e6 * ((seconds - clock_offset_s) - start_s);
    };
    std::int64_t flights = 0;
    for (const Span& span : spans) {
        nlohmann::ordered_json event{{"name", span.what},
                                     {"cat", name_of(span.lane)},
                                     {"ph", "X"},
                                     {"pid", rank},
                                     {"tid", static_cast<int>(span.lane)},
                                     {"ts", microseconds(span.begin_s)}};
        if (!span.in_flight) {
            event["dur"] = 1e6 * (span.end_s - span.begin_s);
            append(event);
            continue;
        }
        // Spans of one thread must nest; those with numbers of their own need not.
        event["ph"] = "b";
        event["id"] = fmt::format("{}.{}", rank, flights++);
        append(event);
        event["ph"] = "e";
        event["ts"] = microseconds(span.end_s);
        append(event);
    }
    return text;
}

StepTrace::StepTrace(const comm::Group& world, std::vector<std::int64_t> steps,
                     std::filesystem::path file)
    : world_(world), steps_(std::move(steps)), file_(std::move(file)) {
    std::ranges::sort(steps_);
}

void StepTrace::add(Span span) {
    const std::scoped_lock lock(mutex_);
    if (span.end_s < recorded_since_) return;
    // What began before belongs to the picture as far as it lies in it.
    span.begin_s = std::max(span.begin_s, recorded_since_);
    spans_.push_back(std::move(span));
}

void StepTrace::end_step() {
    if (recording_) add_rest_();
    recording_ = false;
}

void StepTrace::begin_step(std::int64_t step) {
    const bool followed = recording_;
    end_step();
    const bool wanted = std::ranges::binary_search(steps_, step);
    if (wanted && !followed) {
        const std::scoped_lock lock(mutex_);
        recorded_since_ = now_seconds();
    }
    recording_ = wanted;
    if (!steps_.empty() && step > steps_.back()) finish();
}

void StepTrace::finish() {
    end_step();
    if (written_) return;
    std::array<std::int64_t, 1> most{std::ssize(spans_)};
    world_.all_reduce(most, comm::Reduction::kMax);
    if (most[0] > 0) write();
}

void StepTrace::write() {
    const std::scoped_lock lock(mutex_);
    overlap_ = overlap_of(spans_);
    constexpr int kTrips = 8;
    const auto offsets = comm::clock_offsets(world_, kTrips, now_seconds);
    const double offset = offsets[static_cast<std::size_t>(world_.rank())].offset_s;
    std::array<double, 1> start{recorded_since_ - offset};
    for (const Span& span : spans_) start[0] = std::min(start[0], span.begin_s - offset);
    world_.all_reduce(start, comm::Reduction::kMin);
    const std::vector<std::string> parts =
        world_.all_gather(trace_events(spans_, world_.rank(), host_name(), offset, start[0]));
    comm::agree(world_, [&] {
        if (world_.rank() != 0) return;
        write_file_atomically(file_, fmt::format("{{\"displayTimeUnit\": \"ms\", \"traceEvents\": "
                                                 "[\n{}\n]}}\n",
                                                 fmt::join(parts, ",\n")));
    });
    spans_.clear();
    written_ = true;
}

}  // namespace fullshard::train
