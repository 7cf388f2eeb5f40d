// Where in a save a process is.
#pragma once

#include <cstdint>
#include <functional>

namespace fullshard::checkpoint {

/// Points of a save, in their order. All ranks pass the first two, rank 0 all of them.
enum class SaveStage : std::uint8_t {
    kBeforeData,      ///< files are laid out, nothing is filled
    kDuringData,      ///< some of this rank's data is written
    kBeforeManifest,  ///< all ranks' data is on disk
    kBeforeComplete,
    kBeforeRename,
    kBeforeRetain,  ///< the new checkpoint is whole, older ones are still there
};

/// Called at each stage, to inject faults; maybe by a thread that writes. May be empty.
using StageHook = std::function<void(SaveStage)>;

}  // namespace fullshard::checkpoint
