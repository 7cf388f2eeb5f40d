#include "comm/nccl/nccl_handles.h"

#include "base/clock.h"
#include "base/error.h"
#include "comm/agree.h"
#include "comm/nccl/nccl_status.h"
#include "comm/signals_blocked.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

namespace fullshard::comm {

namespace {
constexpr auto kPoll = std::chrono::milliseconds(1);
}  // namespace

ncclComm_t& NcclHandles::operator[](Slot slot) {
    ensure(slots_ != nullptr, "a mesh that was aborted is not used");
    return (*slots_)[slot];
}

void NcclHandles::close(Slot slot, const Group& world, std::string_view name) {
    ncclComm_t& comm = (*this)[slot];
    bool called = false;
    agree_done(world, fmt::format("end of the {}", name), world.timeout_s(), [&] {
        if (comm == nullptr) return true;
        if (!std::exchange(called, true)) check_nccl(ncclCommFinalize(comm), "ncclCommFinalize");
        return settled(comm, "ncclCommFinalize");
    });
    agree(world, [&] {
        if (comm != nullptr)
            check_nccl(ncclCommDestroy(std::exchange(comm, nullptr)), "ncclCommDestroy");
    });
}

void NcclHandles::stop(const Slots& slots, double revoke_timeout_s) {
    // Errors do not matter any more: what cannot be revoked is aborted all the same.
    Slots revoked{};
    for (std::size_t i = 0; i < slots.size(); ++i) {
        if (slots[i] == nullptr) continue;
        const ncclResult_t result = ncclCommRevoke(slots[i], NCCL_REVOKE_DEFAULT);
        if (result == ncclSuccess || result == ncclInProgress) revoked[i] = slots[i];
    }
    // A revoked communicator is settled when its kernels have stopped. NCCL then clears the flag
    // that stops them: an abort before that could be lost.
    const double end = now_seconds() + revoke_timeout_s;
    for (ncclComm_t comm : revoked) {
        ncclResult_t state = ncclInProgress;
        while (comm != nullptr && ncclCommGetAsyncError(comm, &state) == ncclSuccess &&
               state == ncclInProgress && now_seconds() < end) {
            std::this_thread::sleep_for(kPoll);
        }
    }
    for (ncclComm_t comm : slots) {
        if (comm != nullptr) ncclCommAbort(comm);
    }
}

bool NcclHandles::abort() noexcept {
    const std::shared_ptr<Slots> slots = std::exchange(slots_, nullptr);
    if (slots == nullptr || std::ranges::all_of(*slots, [](auto* comm) { return comm == nullptr; }))
        return true;
    try {
        // The thread may outlive this object, and shares what it works on.
        std::promise<void> promise;
        const std::future<void> done = promise.get_future();
        const SignalsBlocked blocked;
        std::thread thread([slots, revoke_timeout_s = abort_timeout_s_ / 2,
                            promise = std::move(promise)]() mutable {
            stop(*slots, revoke_timeout_s);
            promise.set_value();
        });
        if (done.wait_for(std::chrono::duration<double>(abort_timeout_s_)) ==
            std::future_status::ready) {
            thread.join();
            return true;
        }
        thread.detach();
    } catch (const std::exception&) {
        // No thread to be had: the process leaves as if NCCL had not let go.
    }
    return false;
}

}  // namespace fullshard::comm
