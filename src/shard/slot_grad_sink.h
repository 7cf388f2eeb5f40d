// The gradient sink of one unit over one piece of slot memory.
#pragma once

#include "base/grad_sink.h"
#include "shard/layout.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace fullshard::shard {

/// Hands out the places of a unit's parameters within a gradient slot. The first write of a
/// micro-batch overwrites, later ones add; `seal` lets what was not written be zeroed, padding
/// included, so that whatever the slot held before never enters a sum.
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
    /// Ends the last one. `zero` is called for each part of the slot that was not written.
    void seal(const std::function<void(const TypedSpan&)>& zero);

  private:
    const Unit* unit_;
    std::vector<char> written_;  // not vector<bool>: cleared and read in loops
    TypedSpan slot_;
    bool open_ = false;
};

/// Of host memory.
void zero(const TypedSpan& memory);

}  // namespace fullshard::shard
