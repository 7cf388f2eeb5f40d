#include "comm/collective_counter.h"

#include <mpi.h>

namespace {
std::int64_t count = 0;
}

namespace fullshard {
std::int64_t collective_count() {
    return count;
}
}  // namespace fullshard

// MPI's profiling interface: every MPI_x is a weak name of PMPI_x.
extern "C" {

int MPI_Iallreduce(const void* send, void* receive, int elements, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request* request) {
    ++count;
    return PMPI_Iallreduce(send, receive, elements, type, op, comm, request);
}

int MPI_Iallgather(const void* send, int sends, MPI_Datatype send_type, void* receive, int receives,
                   MPI_Datatype receive_type, MPI_Comm comm, MPI_Request* request) {
    ++count;
    return PMPI_Iallgather(send, sends, send_type, receive, receives, receive_type, comm, request);
}

int MPI_Iallgatherv(const void* send, int sends, MPI_Datatype send_type, void* receive,
                    const int* receives, const int* offsets, MPI_Datatype receive_type,
                    MPI_Comm comm, MPI_Request* request) {
    ++count;
    return PMPI_Iallgatherv(send, sends, send_type, receive, receives, offsets, receive_type, comm,
                            request);
}

int MPI_Ibcast(void* buffer, int elements, MPI_Datatype type, int root, MPI_Comm comm,
               MPI_Request* request) {
    ++count;
    return PMPI_Ibcast(buffer, elements, type, root, comm, request);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
    ++count;
    return PMPI_Ibarrier(comm, request);
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* result) {
    ++count;
    return PMPI_Comm_split(comm, color, key, result);
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* result) {
    ++count;
    return PMPI_Comm_split_type(comm, type, key, info, result);
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* result) {
    ++count;
    return PMPI_Comm_dup(comm, result);
}

int MPI_Win_allocate_shared(MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void* memory,
                            MPI_Win* window) {
    ++count;
    return PMPI_Win_allocate_shared(bytes, unit, info, comm, memory, window);
}

}  // extern "C"
