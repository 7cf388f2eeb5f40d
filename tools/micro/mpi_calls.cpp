#include "micro/mpi_calls.h"

#include "comm/mpi_detail.h"

#include <mpi.h>

#include <vector>

namespace fullshard::micro {

using comm::check_mpi;

void mpi_all_gather(const comm::Group& group, std::span<const float> mine, std::span<float> all) {
    const int count = static_cast<int>(mine.size());
    check_mpi(MPI_Allgather(mine.data(), count, MPI_FLOAT, all.data(), count, MPI_FLOAT,
                            group.impl().comm),
              "MPI_Allgather");
}

void mpi_reduce_scatter(const comm::Group& group, std::span<const float> values,
                        std::span<float> mine) {
    const std::vector<int> counts(static_cast<std::size_t>(group.size()),
                                  static_cast<int>(mine.size()));
    check_mpi(MPI_Reduce_scatter(values.data(), mine.data(), counts.data(), MPI_FLOAT, MPI_SUM,
                                 group.impl().comm),
              "MPI_Reduce_scatter");
}

void mpi_reduce_scatter_block(const comm::Group& group, std::span<const float> values,
                              std::span<float> mine) {
    check_mpi(MPI_Reduce_scatter_block(values.data(), mine.data(), static_cast<int>(mine.size()),
                                       MPI_FLOAT, MPI_SUM, group.impl().comm),
              "MPI_Reduce_scatter_block");
}

void mpi_all_reduce(const comm::Group& group, std::span<float> values) {
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT,
                            MPI_SUM, group.impl().comm),
              "MPI_Allreduce");
}

void mpi_shift(const comm::Group& group, std::span<const float> sent, std::span<float> received) {
    const int next = (group.rank() + 1) % group.size();
    const int previous = (group.rank() + group.size() - 1) % group.size();
    check_mpi(MPI_Sendrecv(sent.data(), static_cast<int>(sent.size()), MPI_FLOAT, next, 0,
                           received.data(), static_cast<int>(received.size()), MPI_FLOAT, previous,
                           0, group.impl().comm, MPI_STATUS_IGNORE),
              "MPI_Sendrecv");
}

}  // namespace fullshard::micro
