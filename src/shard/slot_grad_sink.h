// The gradient sink of one unit over one piece of slot memory.
#pragma once

#include "base/grad_sink.h"
#include "shard/layout.h"

#include <cstdint>
#include <vector>

namespace fullshard::shard {

/// Hands out the places of a unit's parameters within a gradient slot. The first write of a
/// micro-batch overwrites, later ones add; `seal` zeroes what was not written, padding included, so
/// that whatever the slot held before never enters a sum.
class SlotGradSink final : public GradSink {
  public:
    explicit SlotGradSink(const Unit& unit) : unit_(&unit), written_(unit.parameters().size()) {}

    /// Starts a micro-batch in `slot`, which has the unit's padded length and undefined content.
    void begin(const TypedSpan& slot);
    /// Goes on with another micro-batch that adds to what the slot holds since `begin`.
    void resume() { open_ = true; }
    Target open(std::int64_t index) override;
    /// Ends a micro-batch that another one will add to.
    void pause() { open_ = false; }
    void seal();

  private:
    const Unit* unit_;
    std::vector<char> written_;  // not vector<bool>: cleared and read in loops
    TypedSpan slot_;
    bool open_ = false;
};

}  // namespace fullshard::shard
