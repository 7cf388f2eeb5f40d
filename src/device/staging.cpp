#include "device/staging.h"

#include "base/error.h"

#include <algorithm>
#include <utility>

namespace fullshard::device {

namespace {

void check_like(const TypedSpan& from, const TypedSpan& to) {
    ensure(from.dtype == to.dtype && from.count == to.count,
           "a copy has the type and the length of what it copies");
}

}  // namespace

Staging::Staging(Device& device, Stream& stream, WaitFor wait_for)
    : device_(device),
      stream_(stream),
      wait_for_(std::move(wait_for)),
      done_(device.make_event()) {}

TypedSpan Staging::pinned(const TypedSpan& memory) {
    if (pinned_.bytes() < memory.bytes()) {
        pinned_ = device_.allocate("staging", memory.bytes(), Placement::kPinnedHost);
    }
    return pinned_.typed(memory.dtype).part(0, memory.count);
}

void Staging::wait_for_stream() {
    stream_.record(*done_);
    wait_for_(*done_);
}

void Staging::read(const TypedSpan& from, const TypedSpan& to) {
    check_like(from, to);
    const TypedSpan pinned = this->pinned(from);
    stream_.copy(from, pinned);
    wait_for_stream();
    device_.host_access({.name = "read through staging", .reads = {&pinned, 1}});
    std::copy_n(pinned.data, pinned.bytes(), to.data);
}

void Staging::write(const TypedSpan& from, const TypedSpan& to) {
    check_like(from, to);
    const TypedSpan pinned = this->pinned(to);
    device_.host_access({.name = "write through staging", .writes = {&pinned, 1}});
    std::copy_n(from.data, from.bytes(), pinned.data);
    stream_.copy(pinned, to);
    wait_for_stream();
}

}  // namespace fullshard::device
