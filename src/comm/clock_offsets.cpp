#include "comm/clock_offsets.h"

#include "base/clock.h"
#include "comm/mpi_detail.h"

#include <mpi.h>

#include <limits>

namespace fullshard::comm {

namespace {

constexpr int kTag = 0;
constexpr Call kMessage{.kind = "message with the time"};

void send(const Group::Impl& group, int peer, double value) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(&value, 1, MPI_DOUBLE, peer, kTag, group.comm, &request), "MPI_Isend");
    complete(request, {group, 0, kMessage});
}

double receive(const Group::Impl& group, int peer) {
    double value = 0.0;
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(&value, 1, MPI_DOUBLE, peer, kTag, group.comm, &request), "MPI_Irecv");
    complete(request, {group, 0, kMessage});
    return value;
}

ClockOffset ask(const Group::Impl& group, int peer, int trips,
                const std::function<double()>& clock) {
    ClockOffset best{.round_trip_s = std::numeric_limits<double>::infinity()};
    for (int trip = 0; trip < trips; ++trip) {
        const double begin = now_seconds();
        const double here = clock();
        send(group, peer, here);
        const double there = receive(group, peer);
        const double round_trip = now_seconds() - begin;
        // The answer was given halfway, as far as one can know.
        if (round_trip < best.round_trip_s) best = {there - here - round_trip / 2, round_trip};
    }
    return best;
}

}  // namespace

std::vector<ClockOffset> clock_offsets(const Group& group, int trips,
                                       const std::function<double()>& clock) {
    // Messages of their own: a communicator on `group` may be in use.
    const Group own = group.split(0, group.rank());
    std::vector<double> flat(2 * static_cast<std::size_t>(own.size()));
    for (int peer = 1; peer < own.size(); ++peer) {
        if (own.rank() == 0) {
            const ClockOffset found = ask(own.impl(), peer, trips, clock);
            flat[2 * static_cast<std::size_t>(peer)] = found.offset_s;
            flat[2 * static_cast<std::size_t>(peer) + 1] = found.round_trip_s;
        } else if (own.rank() == peer) {
            for (int trip = 0; trip < trips; ++trip) {
                receive(own.impl(), 0);
                send(own.impl(), 0, clock());
            }
        }
    }
    own.all_reduce(flat, Reduction::kSum);  // all but rank 0 add zeros
    std::vector<ClockOffset> offsets;
    for (std::size_t i = 0; i < flat.size(); i += 2) offsets.push_back({flat[i], flat[i + 1]});
    return offsets;
}

}  // namespace fullshard::comm
