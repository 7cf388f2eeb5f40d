#include "device/access_checker.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace fullshard::device {

AccessChecker::AccessChecker() {
    add_timeline("the host");
}

int AccessChecker::add_timeline(std::string name) {
    const auto timeline = static_cast<int>(names_.size());
    names_.push_back(std::move(name));
    for (VectorClock& clock : clocks_) clock.push_back(0);
    clocks_.emplace_back(names_.size(), 0);
    return timeline;
}

void AccessChecker::add_memory(std::byte* data, std::int64_t bytes, std::string name) {
    Memory memory{bytes, std::move(name), false, {}};
    memory.cells.emplace(0, Cell{});
    ensure(memories_.emplace(data, std::move(memory)).second, "addresses are used once");
}

void AccessChecker::remove_memory(const std::byte* data) {
    Memory& memory = memories_.at(data);
    memory.freed = true;
    const std::string does = fmt::format("the host frees buffer '{}'", memory.name);
    for (const auto& [begin, cell] : memory.cells) {
        if (cell.writer && !ordered(*cell.writer, kHost))
            complain(*cell.writer, true, kHost, does, "it");
        for (const NotePtr& reader : cell.readers)
            if (!ordered(*reader, kHost)) complain(*reader, false, kHost, does, "it");
    }
}

void AccessChecker::join(int timeline, const VectorClock& past) {
    VectorClock& clock = at(clocks_, timeline);
    for (std::size_t i = 0; i < past.size(); ++i) clock[i] = std::max(clock[i], past[i]);
}

void AccessChecker::join_all_to_host() {
    for (std::size_t i = 0; i < clocks_.size(); ++i) join(kHost, clocks_[i]);
}

void AccessChecker::operation(int timeline, const Access& access) {
    for (const TypedSpan& span : access.reads) check(timeline, access.name, span, false);
    for (const TypedSpan& span : access.writes) check(timeline, access.name, span, true);
    const std::int64_t time = ++at(at(clocks_, timeline), timeline);
    const auto operation =
        std::make_shared<const Note>(Note{timeline, time, std::string(access.name)});
    for (const TypedSpan& span : access.reads) note(operation, span, false);
    for (const TypedSpan& span : access.writes) note(operation, span, true);
}

bool AccessChecker::ordered(const Note& earlier, int timeline) const {
    return at(at(clocks_, timeline), earlier.timeline) >= earlier.time;
}

AccessChecker::Place AccessChecker::find(int timeline, std::string_view operation, TypedSpan span) {
    const auto after = memories_.upper_bound(span.data);
    const auto reject = [&](const std::string& what) {
        throw LogicError(fmt::format("operation '{}' on {} touches {} bytes at {}, {}", operation,
                                     at(names_, timeline), span.bytes(),
                                     static_cast<const void*>(span.data), what));
    };
    if (after == memories_.begin()) reject("in no buffer of this device");
    auto& [begin, memory] = *std::prev(after);
    const std::int64_t offset = span.data - begin;
    if (offset >= memory.bytes) reject("in no buffer of this device");
    if (memory.freed) reject(fmt::format("in buffer '{}', which is freed", memory.name));
    if (offset + span.bytes() > memory.bytes)
        reject(fmt::format("over the end of buffer '{}' of {} bytes", memory.name, memory.bytes));
    return {begin, &memory};
}

void AccessChecker::check(int timeline, std::string_view operation, TypedSpan span, bool writes) {
    if (span.count == 0) return;
    const auto [base, memory] = find(timeline, operation, span);
    const std::int64_t begin = span.data - base;
    const std::int64_t end = begin + span.bytes();
    for (auto cell = std::prev(memory->cells.upper_bound(begin));
         cell != memory->cells.end() && cell->first < end; ++cell) {
        const auto next = std::next(cell);
        const std::int64_t cell_end = next == memory->cells.end() ? memory->bytes : next->first;
        const auto refuse = [&](const Note& earlier, bool earlier_writes) {
            const std::string bytes =
                fmt::format("bytes [{}, {}) of buffer '{}'", std::max(begin, cell->first),
                            std::min(end, cell_end), memory->name);
            complain(earlier, earlier_writes, timeline,
                     fmt::format("operation '{}' on {} {} {}", operation, at(names_, timeline),
                                 writes ? "writes" : "reads", bytes),
                     "them");
        };
        if (cell->second.writer && !ordered(*cell->second.writer, timeline))
            refuse(*cell->second.writer, true);
        if (!writes) continue;
        for (const NotePtr& reader : cell->second.readers)
            if (!ordered(*reader, timeline)) refuse(*reader, false);
    }
}

void AccessChecker::note(const NotePtr& operation, TypedSpan span, bool writes) {
    if (span.count == 0) return;
    const auto [base, memory] = find(operation->timeline, operation->name, span);
    const std::int64_t begin = span.data - base;
    const std::int64_t end = begin + span.bytes();
    auto& cells = memory->cells;
    const auto cut = [&cells](std::int64_t at_byte) {
        const auto cell = std::prev(cells.upper_bound(at_byte));
        return cell->first == at_byte ? cell : cells.emplace(at_byte, cell->second).first;
    };
    auto first = cut(begin);
    const auto last = end == memory->bytes ? cells.end() : cut(end);
    if (writes) {
        // One cell again, so that their number does not grow with the steps.
        cells.erase(std::next(first), last);
        first->second = {operation, {}};
        return;
    }
    for (; first != last; ++first) {
        auto& readers = first->second.readers;
        const auto same = std::ranges::find(readers, operation->timeline,
                                            [](const NotePtr& reader) { return reader->timeline; });
        if (same != readers.end())
            *same = operation;
        else
            readers.push_back(operation);
    }
}

void AccessChecker::complain(const Note& earlier, bool earlier_writes, int timeline,
                             std::string_view does, const std::string& bytes) const {
    throw LogicError(fmt::format(
        "{}: {} although operation '{}' on {}, which {} {}, is not known to be done. Missing: {} "
        "waits for an event that {} records after '{}'",
        earlier_writes ? "use before ready" : "reuse before done", does, earlier.name,
        at(names_, earlier.timeline), earlier_writes ? "writes" : "reads", bytes,
        at(names_, timeline), at(names_, earlier.timeline), earlier.name));
}

}  // namespace fullshard::device
