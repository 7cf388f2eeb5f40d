#include "comm/hang_report.h"

#include "base/error.h"
#include "base/files.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>

namespace fullshard::comm {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Ranks as [first, number, distance] triples: groups are made of neighbours, or of ranks of equal
/// distance, and a job may have thousands.
Json folded(const std::vector<int>& ranks) {
    Json runs = Json::array();
    for (std::size_t begin = 0; begin < ranks.size();) {
        std::size_t end = begin + 1;
        const int distance = end < ranks.size() ? ranks[end] - ranks[begin] : 1;
        while (end < ranks.size() && ranks[end] - ranks[end - 1] == distance) ++end;
        runs.push_back({ranks[begin], end - begin, distance});
        begin = end;
    }
    return runs;
}

std::vector<int> unfolded(const Json& runs) {
    std::vector<int> ranks;
    for (const Json& run : runs) {
        for (int i = 0; i < run.at(1).get<int>(); ++i)
            ranks.push_back(run.at(0).get<int>() + i * run.at(2).get<int>());
    }
    return ranks;
}

Json to_json(const RankReport& report) {
    Json json{{"rank", report.rank},
              {"host", report.host},
              {"activity", report.activity},
              {"quiet_s", report.quiet_s},
              {"waits", report.waits}};
    if (report.waits) {
        json["waits_in"] = report.waits_in;
        json["sequence"] = report.sequence;
        json["waits_for"] = report.waits_for;
        json["missing"] = folded(report.missing);
    }
    json["tracks"] = Json::array();
    for (const RankReport::Track& track : report.tracks) {
        json["tracks"].push_back({{"name", track.name},
                                  {"members", folded(track.members)},
                                  {"calls", track.calls},
                                  {"last", track.last}});
    }
    return json;
}

RankReport from_json(const Json& json) {
    RankReport report;
    report.rank = json.at("rank");
    report.host = json.at("host");
    report.activity = json.at("activity");
    report.quiet_s = json.at("quiet_s");
    report.waits = json.at("waits");
    report.waits_in = json.value("waits_in", "");
    report.sequence = json.value("sequence", std::int64_t{0});
    report.waits_for = json.value("waits_for", "");
    report.missing = unfolded(json.value("missing", Json::array()));
    for (const Json& track : json.at("tracks")) {
        report.tracks.push_back(
            {track.at("name"), unfolded(track.at("members")), track.at("calls"), track.at("last")});
    }
    return report;
}

const RankReport* report_of(std::span<const RankReport> reports, int rank) {
    const auto found = std::ranges::find(reports, rank, &RankReport::rank);
    return found == reports.end() ? nullptr : &*found;
}

const RankReport::Track* track_of(const RankReport& report, const std::string& name) {
    const auto found = std::ranges::find(report.tracks, name, &RankReport::Track::name);
    return found == report.tracks.end() ? nullptr : &*found;
}

/// The ranks that have not made the call that `waiting` waits in, as far as anyone can tell.
std::vector<int> missing_for(const RankReport& waiting, std::span<const RankReport> reports) {
    if (!waiting.missing.empty()) return waiting.missing;
    const RankReport::Track* track = track_of(waiting, waiting.waits_in);
    if (track == nullptr) return {};
    std::vector<int> missing;
    for (const int member : track->members) {
        const RankReport* theirs = report_of(reports, member);
        const RankReport::Track* their_track =
            theirs == nullptr ? nullptr : track_of(*theirs, waiting.waits_in);
        if (their_track == nullptr || their_track->calls < waiting.sequence)
            missing.push_back(member);
    }
    return missing;
}

std::string ranks_text(const std::vector<int>& ranks) {
    return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", rank_list(ranks));
}

std::string call_text(const RankReport& waiting) {
    if (waiting.waits_in.empty()) return waiting.waits_for;
    return fmt::format("{}, call {} of {}", waiting.waits_for, waiting.sequence, waiting.waits_in);
}

std::string whereabouts(int rank, std::span<const RankReport> reports, const std::string& track) {
    const RankReport* report = report_of(reports, rank);
    if (report == nullptr)
        return fmt::format("rank {} says nothing: it is stopped, dead, or sees no files", rank);
    std::string text = fmt::format("rank {} on {} has called nothing for {:.0f} s, in {}", rank,
                                   report->host, report->quiet_s, report->activity);
    const RankReport::Track* theirs = track.empty() ? nullptr : track_of(*report, track);
    if (theirs != nullptr && theirs->calls > 0)
        text += fmt::format(" (its last there: {}, call {})", theirs->last, theirs->calls);
    return text;
}

/// A call and the ranks that wait in it.
struct Meeting {
    std::vector<int> waiting;
    std::set<int> missing;
    const RankReport* example = nullptr;
};

}  // namespace

void write_report(const fs::path& folder, const RankReport& report) {
    std::error_code error;
    fs::create_directories(folder, error);
    write_file_atomically(folder / fmt::format("rank-{:05}.json", report.rank),
                          to_json(report).dump(1) + '\n');
}

std::vector<RankReport> read_reports(const fs::path& folder) {
    std::vector<RankReport> reports;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
        if (entry.path().extension() != ".json") continue;
        try {
            reports.push_back(from_json(Json::parse(read_file(entry.path()))));
        } catch (const std::exception&) {
            continue;  // not a report, or gone again: its rank counts as silent
        }
    }
    std::ranges::sort(reports, {}, &RankReport::rank);
    return reports;
}

std::string explain_hang(std::span<const RankReport> reports, int ranks) {
    std::map<std::string, Meeting> meetings;
    for (const RankReport& report : reports) {
        if (!report.waits) continue;
        Meeting& meeting = meetings[call_text(report)];
        meeting.waiting.push_back(report.rank);
        meeting.example = &report;
        std::ranges::copy(missing_for(report, reports),
                          std::inserter(meeting.missing, meeting.missing.end()));
    }
    // The cause is a rank that others wait for and that waits for nobody.
    const auto is_cause = [&](int rank) {
        const RankReport* report = report_of(reports, rank);
        return report == nullptr || !report->waits;
    };
    const Meeting* worst = nullptr;
    std::vector<int> causes;
    for (const auto& [name, meeting] : meetings) {
        std::vector<int> of_this;
        std::ranges::copy_if(meeting.missing, std::back_inserter(of_this), is_cause);
        if (of_this.empty()) continue;
        if (worst != nullptr && worst->waiting.size() >= meeting.waiting.size()) continue;
        worst = &meeting;
        causes = std::move(of_this);
    }
    if (worst != nullptr) {
        return fmt::format("{} {} not come to {}, where {} wait{}; {}", ranks_text(causes),
                           causes.size() == 1 ? "has" : "have", call_text(*worst->example),
                           ranks_text(worst->waiting), worst->waiting.size() == 1 ? "s" : "",
                           whereabouts(causes.front(), reports, worst->example->waits_in));
    }
    if (meetings.empty()) {
        std::vector<int> silent(static_cast<std::size_t>(ranks));
        std::iota(silent.begin(), silent.end(), 0);
        std::erase_if(silent, [&](int rank) { return report_of(reports, rank) != nullptr; });
        const int first = reports.empty() ? 0 : reports.front().rank;
        return fmt::format("{}{}", whereabouts(first, reports, ""),
                           silent.empty() ? "" : "; nothing is heard of " + ranks_text(silent));
    }
    if (meetings.size() == 1) {
        const Meeting& only = meetings.begin()->second;
        return fmt::format(
            "{} wait in {}, which all of its ranks have come to: messages are lost or "
            "do not move",
            ranks_text(only.waiting), call_text(*only.example));
    }
    std::string text = "ranks wait for each other in different calls:";
    for (const auto& [name, meeting] : meetings)
        text += fmt::format(" {} in {};", ranks_text(meeting.waiting), name);
    text.back() = '.';
    return text;
}

}  // namespace fullshard::comm
