#include "checkpoint/format/hdf5.h"

#include "base/error.h"

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

Handle float_type(DType dtype) {
    Handle type = own<RunError>(H5Tcopy(H5T_IEEE_F32LE), H5Tclose, "HDF5 type");
    if (dtype == DType::kFloat32) return type;
    ensure(dtype == DType::kBFloat16 || dtype == DType::kFloat16, "tensors are floating point");
    const std::size_t exponent_bits = dtype == DType::kBFloat16 ? 8 : 5;
    const std::size_t mantissa_bits = 15 - exponent_bits;
    // The fields move to the lower two bytes before the upper ones are cut off.
    check<RunError>(H5Tset_fields(type.id(), 15, mantissa_bits, exponent_bits, 0, mantissa_bits),
                    "HDF5 type");
    check<RunError>(H5Tset_size(type.id(), 2), "HDF5 type");
    check<RunError>(H5Tset_ebias(type.id(), (std::size_t{1} << (exponent_bits - 1)) - 1),
                    "HDF5 type");
    return type;
}

}  // namespace fullshard::checkpoint::hdf5
