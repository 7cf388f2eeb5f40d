#include "checkpoint/format/hdf5.h"

#include <string>

namespace fullshard::checkpoint::hdf5 {

SilentErrors::SilentErrors() {
    H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

SilentErrors::~SilentErrors() {
    H5Eset_auto2(H5E_DEFAULT, function_, data_);
}

std::string error_reason() {
    std::string reason;
    // Upwards: from where the failure was found to the call of ours. The first two say what
    // happened ("unable to open file: name = ..., errno = 2 ..."); the rest repeats it in general
    // words.
    int depth = 0;
    const auto append = [&](const H5E_error2_t* error) {
        if (depth++ >= 2 || error->desc == nullptr) return;
        if (!reason.empty()) reason += "; ";
        reason += error->desc;
    };
    using Append = decltype(append);
    H5Ewalk2(
        H5E_DEFAULT, H5E_WALK_UPWARD,
        [](unsigned, const H5E_error2_t* error, void* context) -> herr_t {
            (*static_cast<const Append*>(context))(error);
            return 0;
        },
        const_cast<void*>(static_cast<const void*>(&append)));
    return reason.empty() ? "HDF5 gives no reason" : reason;
}

}  // namespace fullshard::checkpoint::hdf5
