#include "comm/ledger.h"

#include "base/clock.h"
#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fullshard::comm {

std::string Call::describe() const {
    std::string text(kind);
    if (!type.empty()) text += fmt::format(" of {} {}", count, type);
    if (root >= 0) text += fmt::format(" from rank {}", root);
    return text;
}

Ledger::Ledger() : last_event_(now_seconds()) {}

void Ledger::touch() {
    last_event_ = now_seconds();
}

std::int64_t Ledger::add_track(std::string name, std::vector<int> members) {
    ensure(!members.empty(), "a track has ranks");
    const std::scoped_lock lock(mutex_);
    auto free = std::ranges::find_if(tracks_, [](const Track& t) { return t.members.empty(); });
    if (free == tracks_.end()) free = tracks_.insert(tracks_.end(), Track{});
    *free = {std::move(name), std::move(members), 0, {}};
    return free - tracks_.begin();
}

void Ledger::remove_track(std::int64_t track) {
    const std::scoped_lock lock(mutex_);
    tracks_.at(static_cast<std::size_t>(track)) = {};
}

std::int64_t Ledger::begin(std::int64_t track, const Call& call) {
    const std::scoped_lock lock(mutex_);
    touch();
    Track& entry = tracks_[static_cast<std::size_t>(track)];
    entry.last = call;
    return ++entry.calls;
}

namespace {

Lane lane_of(const Call& call) {
    if (call.kind == "all_gather") return Lane::kGather;
    return call.kind.find("reduce") != std::string_view::npos ? Lane::kReduce : Lane::kOther;
}

}  // namespace

void Ledger::end(std::int64_t track, const Call& call, double begun_s) {
    Timeline* const timeline = timeline_;
    if (timeline == nullptr || !timeline->recording()) return;
    std::string name;
    {
        const std::scoped_lock lock(mutex_);
        name = tracks_[static_cast<std::size_t>(track)].name;
    }
    timeline->add({lane_of(call), fmt::format("{}: {}", name, call.describe()), begun_s,
                   now_seconds(), /*in_flight=*/true});
}

void Ledger::waits(Wait wait) {
    const std::scoped_lock lock(mutex_);
    waiting_ = true;
    wait_ = std::move(wait);
}

void Ledger::waits_no_more() {
    const std::scoped_lock lock(mutex_);
    touch();
    waiting_ = false;
}

void Ledger::enter(const char* activity, std::int64_t number) {
    const std::scoped_lock lock(mutex_);
    touch();
    activity_ = activity;
    number_ = number;
}

void Ledger::allow(double seconds) {
    const std::scoped_lock lock(mutex_);
    touch();
    allowed_s_ = seconds;
}

double Ledger::allowed_s() const {
    const std::scoped_lock lock(mutex_);
    return allowed_s_;
}

double Ledger::quiet_s() const {
    const std::scoped_lock lock(mutex_);
    return now_seconds() - last_event_;
}

void Ledger::forgive(double seconds) {
    const std::scoped_lock lock(mutex_);
    last_event_ = std::min(now_seconds(), last_event_ + seconds);
}

RankReport Ledger::report() const {
    const std::scoped_lock lock(mutex_);
    RankReport report;
    report.activity = number_ < 0 ? activity_ : fmt::format("{} {}", activity_, number_);
    report.quiet_s = now_seconds() - last_event_;
    report.waits = waiting_;
    if (waiting_) {
        if (wait_.track >= 0) report.waits_in = tracks_[static_cast<std::size_t>(wait_.track)].name;
        report.sequence = wait_.sequence;
        report.waits_for = wait_.what;
        report.missing = wait_.missing;
    }
    for (const Track& track : tracks_) {
        if (track.members.empty()) continue;
        report.tracks.push_back({track.name, track.members, track.calls, track.last.describe()});
    }
    return report;
}

Ledger::Patience::Patience(Ledger& ledger, double seconds)
    : ledger_(ledger), before_(ledger.allowed_s()) {
    ledger.allow(std::max(before_, seconds));
}

std::string rank_list(const std::vector<int>& ranks) {
    std::string text;
    for (std::size_t begin = 0; begin < ranks.size();) {
        std::size_t end = begin + 1;
        while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
        if (!text.empty()) text += ", ";
        text += end - begin == 1 ? fmt::format("{}", ranks[begin])
                                 : fmt::format("{}-{}", ranks[begin], ranks[end - 1]);
        begin = end;
    }
    return text;
}

}  // namespace fullshard::comm
