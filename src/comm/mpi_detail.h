// Inside comm only: the MPI side of Group, and the one way to check MPI's status codes.
#pragma once

#include "comm/group.h"

#include <mpi.h>

#include <source_location>
#include <string>

namespace fullshard::comm {

struct Group::Impl {
    MPI_Comm comm = MPI_COMM_NULL;
    int rank = 0;
    int size = 0;
    double timeout_s = 0.0;

    Impl(MPI_Comm owned, double timeout);
    ~Impl();
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;
};

/// Throws CommunicationError naming process, call, MPI's text and the place if `status` is an
/// error.
void check_mpi(int status, const char* call,
               std::source_location where = std::source_location::current());

/// Polls until the request is complete, with the group's deadline.
void complete(MPI_Request& request, const Group::Impl& group, const char* call);

}  // namespace fullshard::comm
