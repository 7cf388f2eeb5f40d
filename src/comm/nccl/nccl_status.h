// Inside comm/nccl only: the one way to read NCCL's results.
#pragma once

#include <nccl.h>

#include <source_location>

namespace fullshard::comm {

/// Throws CommunicationError naming the call, NCCL's result, its last message and the place, unless
/// the call succeeded or goes on in the background (communicators are non-blocking). Who reports
/// the error adds rank and host.
void check_nccl(ncclResult_t result, const char* call,
                std::source_location where = std::source_location::current());

/// Whether what NCCL does in the background for `comm` is done: until then no call may use the
/// communicator, and no event may be recorded on a stream that it was given. Throws as above,
/// naming `call` as what failed, when it has failed.
bool settled(ncclComm_t comm, const char* call,
             std::source_location where = std::source_location::current());

}  // namespace fullshard::comm
