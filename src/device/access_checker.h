// Finds accesses to memory that nothing orders, whatever order they happened to run in.
#pragma once

#include "device/device.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::device {

/// For each timeline, how many of its operations are known to be done: a vector clock.
using VectorClock = std::vector<std::int64_t>;

/// Detector of races with vector clocks over declared accesses, as for threads (Flanagan and
/// Freund, "FastTrack", PLDI 2009). A timeline is a stream or the host; an operation is ordered
/// after another where a chain of joins leads from that one to it. What it says depends on the
/// order of the calls alone, not on when operations run.
class AccessChecker {
  public:
    static constexpr int kHost = 0;  ///< the timeline that is there from the start

    AccessChecker();

    /// `name` is how messages call it: "stream 'gather'".
    int add_timeline(std::string name);
    /// Memory that may be accessed from here on. Its addresses are never used again.
    void add_memory(std::byte* data, std::int64_t bytes, std::string name);
    /// Takes it away. Throws LogicError if an operation that the host has not waited for uses it.
    void remove_memory(const std::byte* data);

    /// What is ordered before the next operation of the timeline.
    const VectorClock& now(int timeline) const { return at(clocks_, timeline); }
    /// The timeline's next operations are ordered after everything in `past`.
    void join(int timeline, const VectorClock& past);
    /// The host's next operations are ordered after everything so far.
    void join_all_to_host();

    /// Notes the timeline's next operation. Throws LogicError, and notes nothing, where it is
    ///  - use before ready: it touches bytes whose last writer is not ordered before it;
    ///  - reuse before done: it writes bytes while a reader of them is not ordered before it;
    ///  - an access to memory that is freed, or in no buffer, or reaches over the end of one.
    void operation(int timeline, const Access& access);

  private:
    /// One operation.
    struct Note {
        int timeline;
        std::int64_t time;  ///< its number in the timeline, from 1
        std::string name;
    };
    using NotePtr = std::shared_ptr<const Note>;

    /// Bytes that were accessed alike: they end where the next cell begins.
    struct Cell {
        NotePtr writer;                ///< the last one
        std::vector<NotePtr> readers;  ///< since then; the last one of each timeline
    };
    struct Memory {
        std::int64_t bytes;
        std::string name;
        bool freed = false;
        std::map<std::int64_t, Cell> cells;  ///< by first byte; the first begins at 0
    };
    struct Place {
        const std::byte* begin;
        Memory* memory;
    };

    template <typename T>
    static T& at(std::vector<T>& all, int index) {
        return all[static_cast<std::size_t>(index)];
    }
    template <typename T>
    static const T& at(const std::vector<T>& all, int index) {
        return all[static_cast<std::size_t>(index)];
    }

    bool ordered(const Note& earlier, int timeline) const;
    Place find(int timeline, std::string_view operation, TypedSpan span);
    void check(int timeline, std::string_view operation, TypedSpan span, bool writes);
    void note(const NotePtr& operation, TypedSpan span, bool writes);
    [[noreturn]] void complain(const Note& earlier, bool earlier_writes, int timeline,
                               std::string_view does, const std::string& bytes) const;

    std::vector<std::string> names_;
    std::vector<VectorClock> clocks_;
    std::map<const std::byte*, Memory> memories_;
};

}  // namespace fullshard::device
