// Who wants to know what happened when, for a picture of a step.
#pragma once

#include <cstdint>
#include <string>

namespace fullshard {

/// Rows of the picture.
enum class Lane : std::uint8_t { kCompute, kGather, kReduce, kOptimizer, kCheckpoint, kOther };

/// Something that took time; seconds as now_seconds() counts them.
struct Span {
    Lane lane = Lane::kOther;
    std::string what;
    double begin_s = 0.0;
    double end_s = 0.0;
    /// It went on by itself, beside whatever the rank's thread did, and beside others of its lane.
    bool in_flight = false;
};

/// Receives spans. Calls come from any thread.
class Timeline {
  public:
    virtual ~Timeline() = default;

    /// Whether spans that end now are wanted: nobody needs to make others.
    virtual bool recording() const = 0;
    virtual void add(Span span) = 0;
};

}  // namespace fullshard
