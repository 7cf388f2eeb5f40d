// Agreement before a branch that one rank could take alone.
#pragma once

#include "base/error.h"
#include "comm/group.h"

#include <cstdint>
#include <functional>
#include <string_view>

namespace fullshard::comm {

/// The same error on every rank of a group: main may finalise MPI and leave with its exit code.
class AgreedError : public Error {
  public:
    using Error::Error;
};

/// Runs `work` on every rank of the group, then agrees: if it threw anywhere, every rank throws
/// AgreedError with the text and exit code of the lowest rank that failed. `work` must not call
/// collectives that its peers could miss. Collective.
void agree(const Group& group, const std::function<void()>& work);

/// Calls `poll` on every rank until it has returned true on all of them; a rank where it has is not
/// asked again. For work that goes on in the background of all ranks and that peers of a rank which
/// failed would never finish: once `poll` has thrown on one rank, or `timeout_s` seconds are over,
/// every rank throws the same AgreedError. Errors call the work `what` ("creation of the world
/// communicator"). Collective.
void agree_done(const Group& group, std::string_view what, double timeout_s,
                const std::function<bool()>& poll);

/// Throws AgreedError on every rank unless all have the same `fingerprint` of `what`. Collective.
void agree_equal(const Group& group, std::string_view what, std::uint64_t fingerprint);

}  // namespace fullshard::comm
