// MPI's own collectives on private memory: what stores and communicators are held against.
#pragma once

#include "comm/group.h"

#include <span>

namespace fullshard::micro {

/// Each takes fp32 values, blocks in rank order, and throws CommunicationError. Collective.
void mpi_all_gather(const comm::Group& group, std::span<const float> mine, std::span<float> all);
void mpi_reduce_scatter(const comm::Group& group, std::span<const float> values,
                        std::span<float> mine);
void mpi_reduce_scatter_block(const comm::Group& group, std::span<const float> values,
                              std::span<float> mine);
/// In place.
void mpi_all_reduce(const comm::Group& group, std::span<float> values);
/// To the next rank and from the one before: one message of the whole span each way.
void mpi_shift(const comm::Group& group, std::span<const float> sent, std::span<float> received);

}  // namespace fullshard::micro
