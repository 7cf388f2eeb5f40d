// HDF5 behind RAII and exceptions. Only for the .cpp files of checkpoint: it brings hdf5.h along.
#pragma once

#include "base/span.h"

#include <hdf5.h>

#include <string>
#include <string_view>
#include <utility>

namespace fullshard::checkpoint::hdf5 {

/// Stops HDF5 from printing its error stack for as long as it lives; the stack goes into
/// exceptions.
class SilentErrors {
  public:
    SilentErrors();
    ~SilentErrors();
    SilentErrors(const SilentErrors&) = delete;
    SilentErrors& operator=(const SilentErrors&) = delete;

  private:
    H5E_auto2_t function_ = nullptr;
    void* data_ = nullptr;
};

/// Why the last call failed: the innermost descriptions of HDF5's error stack. The call must have
/// failed while a SilentErrors lived.
std::string error_reason();

/// An HDF5 identifier of any kind, closed on every path.
class Handle {
  public:
    using Close = herr_t (*)(hid_t);

    Handle() = default;
    Handle(hid_t id, Close close) : id_(id), close_(close) {}
    ~Handle() { static_cast<void>(reset()); }
    Handle(Handle&& other) noexcept
        : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
    Handle& operator=(Handle&& other) noexcept {
        std::swap(id_, other.id_);
        std::swap(close_, other.close_);
        return *this;
    }

    hid_t id() const { return id_; }
    bool valid() const { return id_ >= 0; }
    /// Closes now; false when HDF5 reports a failure.
    bool reset() { return !valid() || close_(std::exchange(id_, H5I_INVALID_HID)) >= 0; }

  private:
    hid_t id_ = H5I_INVALID_HID;
    Close close_ = nullptr;
};

/// Throws ErrorType with "`what`: HDF5's reason" for a failed call.
template <typename ErrorType, typename Status>
Status check(Status status, std::string_view what) {
    if (status < 0) throw ErrorType(std::string(what) + ": " + error_reason());
    return status;
}

/// As check(), for calls that return an identifier.
template <typename ErrorType>
Handle own(hid_t id, Handle::Close close, std::string_view what) {
    return Handle(check<ErrorType>(id, what), close);
}

/// Little-endian floating point of fp32, bf16 or fp16. HDF5 has no bfloat16 before 2.0 and no
/// binary16 before 1.14: they are described bit by bit, which every release reads. Throws RunError.
Handle float_type(DType dtype);

/// Properties for opening a file with the serial driver. It is locked as far as the file system
/// knows locks: some parallel ones do not.
template <typename ErrorType>
Handle file_access(std::string_view what) {
    Handle access = own<ErrorType>(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, what);
    check<ErrorType>(H5Pset_file_locking(access.id(), true, true), what);
    return access;
}

}  // namespace fullshard::checkpoint::hdf5
