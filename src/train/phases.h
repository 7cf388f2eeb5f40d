// Where a rank's time goes, phase by phase.
#pragma once

#include "base/clock.h"

#include <array>
#include <cstdint>
#include <string_view>

namespace fullshard::train {

enum class Phase : std::uint8_t {
    kOther,
    kData,
    kUnshard,  ///< waiting for, or gathering, parameters
    kForward,
    kBackward,
    kReduce,     ///< summing gradients over ranks, waits included
    kOptimizer,  ///< norm, update and publication
    kEvaluation,
    kCheckpoint,
    kLog,
};
inline constexpr std::size_t kPhases = 10;
std::string_view name_of(Phase phase);

/// Charges time to one phase at a time: entering a phase pauses the one around it, except
/// evaluation, to which everything inside it belongs. Seconds.
class PhaseClock {
  public:
    class Scope {
      public:
        Scope(PhaseClock& clock, Phase phase)
            : clock_(clock), outer_(clock.current_), entered_(outer_ != Phase::kEvaluation) {
            if (entered_) clock_.switch_to(phase);
        }
        ~Scope() {
            if (entered_) clock_.switch_to(outer_);
        }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

      private:
        PhaseClock& clock_;
        Phase outer_;
        bool entered_;
    };

    PhaseClock() : last_(now_seconds()) {}

    /// Until the scope ends, time belongs to `phase`.
    [[nodiscard]] Scope enter(Phase phase) { return {*this, phase}; }
    /// Seconds of each phase so far, the running one included.
    const std::array<double, kPhases>& seconds();

  private:
    void switch_to(Phase phase);

    std::array<double, kPhases> seconds_{};
    Phase current_ = Phase::kOther;
    double last_;
};

}  // namespace fullshard::train
