#include "comm/nccl/nccl_status.h"

#include "base/error.h"

#include <fmt/format.h>

#include <string_view>

namespace fullshard::comm {

void check_nccl(ncclResult_t result, const char* call, std::source_location where) {
    if (result == ncclSuccess || result == ncclInProgress) return;
    // NCCL keeps one last message for all communicators, whichever is asked.
    const char* last = ncclGetLastError(nullptr);
    const std::string_view message = last == nullptr ? "" : last;
    throw CommunicationError(fmt::format("{} failed: {}{}{} ({}:{})", call,
                                         ncclGetErrorString(result), message.empty() ? "" : ": ",
                                         message, where.file_name(), where.line()));
}

bool settled(ncclComm_t comm, const char* call, std::source_location where) {
    ncclResult_t state = ncclInProgress;
    check_nccl(ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError", where);
    check_nccl(state, call, where);
    return state == ncclSuccess;
}

}  // namespace fullshard::comm
