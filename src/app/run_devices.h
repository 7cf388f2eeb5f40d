// The devices of a run, for the doctor.
#pragma once

#include "config/deck.h"
#include "doctor/doctor.h"
#include "train/run_device.h"

#include <memory>

namespace fullshard::app {

/// Opens and connects devices as a run of the deck does. Collective to destroy, unless an error of
/// one rank alone has ended it.
class RunDevices final : public doctor::Devices {
  public:
    /// `keys` outlives it and asks for devices.
    explicit RunDevices(const config::Device& keys) : keys_(keys) {}

    doctor::DeviceFacts open(const comm::Topology& topology) override;
    void connect(const comm::Topology& topology) override;

  private:
    const config::Device& keys_;
    std::unique_ptr<train::RunDevice> device_;
};

}  // namespace fullshard::app
