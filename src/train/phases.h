// Where a rank's time goes, phase by phase.
#pragma once

#include "base/clock.h"
#include "base/timeline.h"
#include "device/device.h"
#include "device/span_recorder.h"

#include <array>
#include <cstdint>
#include <optional>
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
        Scope(PhaseClock& clock, Phase phase, std::string_view what)
            : clock_(clock),
              outer_(clock.current_),
              outer_what_(clock.what_),
              entered_(outer_ != Phase::kEvaluation) {
            if (entered_) clock_.switch_to(phase, what);
        }
        ~Scope() {
            if (entered_) clock_.switch_to(outer_, outer_what_);
        }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

      private:
        PhaseClock& clock_;
        Phase outer_;
        std::string_view outer_what_;
        bool entered_;
    };

    PhaseClock() : last_(now_seconds()) {}

    /// Until the scope ends, time belongs to `phase`, and in it to `what`, which outlives it.
    [[nodiscard]] Scope enter(Phase phase, std::string_view what = {}) {
        return {*this, phase, what};
    }
    /// Null: none. It must outlive its use here.
    void show_on(Timeline* timeline) { timeline_ = timeline; }
    /// Passes and updates are computed by the stream of a device: their spans are the device's, and
    /// profilers see the phases. All of it outlives its use here.
    void compute_on(device::Device& device, device::Stream& stream, device::SpanRecorder& spans) {
        device_ = OnDevice{&device, &stream, &spans};
    }
    /// Seconds of each phase so far, the running one included.
    const std::array<double, kPhases>& seconds();

  private:
    struct OnDevice {
        device::Device* device;
        device::Stream* stream;
        device::SpanRecorder* spans;
    };

    void switch_to(Phase phase, std::string_view what);
    void show_on_device(Phase phase, std::string_view what);

    std::array<double, kPhases> seconds_{};
    Phase current_ = Phase::kOther;
    std::string_view what_;
    double last_;
    Timeline* timeline_ = nullptr;
    std::optional<OnDevice> device_;
    device::SpanRecorder::Scope computing_;  ///< what the stream is told now
    int ranges_ = 0;                         ///< open ones of a profiler
};

}  // namespace fullshard::train
