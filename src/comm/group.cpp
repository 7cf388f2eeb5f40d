#include "comm/group.h"

#include "base/error.h"
#include "comm/mpi_detail.h"
#include "comm/waiter.h"

#include <fmt/format.h>

#include <exception>
#include <numeric>

namespace fullshard::comm {

void check_mpi(int status, const char* call, std::source_location where) {
    if (status == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(status, text, &length);
    throw CommunicationError(
        fmt::format("{} failed: {} ({}:{})", call, text, where.file_name(), where.line()));
}

void complete(MPI_Request& request, const Group::Impl& group, const char* call) {
    Waiter waiter(group.timeout_s,
                  [&] { return fmt::format("{} in a group of {} ranks", call, group.size); });
    for (int done = 0;;) {
        check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call);
        if (done != 0) return;
        waiter.pause();
    }
}

Group::Impl::Impl(MPI_Comm owned, double timeout) : comm(owned), timeout_s(timeout) {
    check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
}

Group::Impl::~Impl() {
    // Freeing is collective: after an error the peers may never come, and the job is ending anyway.
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0 && std::uncaught_exceptions() == 0) MPI_Comm_free(&comm);
}

Group Group::world(double timeout_s) {
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
    return Group(std::make_shared<const Impl>(comm, timeout_s));
}

Group Group::self(double timeout_s) {
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(MPI_COMM_SELF, &comm), "MPI_Comm_dup");
    return Group(std::make_shared<const Impl>(comm, timeout_s));
}

int Group::rank() const {
    return impl_ ? impl_->rank : 0;
}
int Group::size() const {
    return impl_ ? impl_->size : 0;
}
double Group::timeout_s() const {
    return impl_->timeout_s;
}

Group Group::split(int color, int key) const {
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(impl_->comm, color < 0 ? MPI_UNDEFINED : color, key, &comm),
              "MPI_Comm_split");
    if (comm == MPI_COMM_NULL) return {};
    return Group(std::make_shared<const Impl>(comm, impl_->timeout_s));
}

Group Group::split_by_shared_memory() const {
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(
        MPI_Comm_split_type(impl_->comm, MPI_COMM_TYPE_SHARED, impl_->rank, MPI_INFO_NULL, &comm),
        "MPI_Comm_split_type");
    return Group(std::make_shared<const Impl>(comm, impl_->timeout_s));
}

void Group::barrier() const {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibarrier(impl_->comm, &request), "MPI_Ibarrier");
    complete(request, *impl_, "a barrier");
}

namespace {

MPI_Op operation(Reduction reduction) {
    switch (reduction) {
        case Reduction::kMin:
            return MPI_MIN;
        case Reduction::kMax:
            return MPI_MAX;
        case Reduction::kSum:
            break;
    }
    return MPI_SUM;
}

template <typename T>
void all_reduce_small(const Group::Impl& group, std::span<T> values, MPI_Datatype type,
                      Reduction reduction) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), type,
                             operation(reduction), group.comm, &request),
              "MPI_Iallreduce");
    complete(request, group, "an all-reduce of control values");
}

template <typename T>
void all_gather_small(const Group::Impl& group, std::span<const T> mine, std::span<T> all,
                      MPI_Datatype type) {
    ensure(all.size() == mine.size() * static_cast<std::size_t>(group.size),
           "all_gather's result has one part a rank");
    const int count = static_cast<int>(mine.size());
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(
        MPI_Iallgather(mine.data(), count, type, all.data(), count, type, group.comm, &request),
        "MPI_Iallgather");
    complete(request, group, "an all-gather of control values");
}

}  // namespace

void Group::all_reduce(std::span<std::int64_t> values, Reduction reduction) const {
    all_reduce_small(*impl_, values, MPI_INT64_T, reduction);
}

void Group::all_reduce(std::span<double> values, Reduction reduction) const {
    all_reduce_small(*impl_, values, MPI_DOUBLE, reduction);
}

void Group::all_gather(std::span<const double> mine, std::span<double> all) const {
    all_gather_small(*impl_, mine, all, MPI_DOUBLE);
}

void Group::all_gather(std::span<const std::int64_t> mine, std::span<std::int64_t> all) const {
    all_gather_small(*impl_, mine, all, MPI_INT64_T);
}

std::string Group::broadcast(std::string text, int root) const {
    std::int64_t length = static_cast<std::int64_t>(text.size());
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibcast(&length, 1, MPI_INT64_T, root, impl_->comm, &request), "MPI_Ibcast");
    complete(request, *impl_, "a broadcast");
    text.resize(static_cast<std::size_t>(length));
    check_mpi(
        MPI_Ibcast(text.data(), static_cast<int>(length), MPI_CHAR, root, impl_->comm, &request),
        "MPI_Ibcast");
    complete(request, *impl_, "a broadcast");
    return text;
}

std::vector<std::string> Group::all_gather(const std::string& text) const {
    const std::int64_t mine = static_cast<std::int64_t>(text.size());
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(size()));
    all_gather(std::span(&mine, 1), lengths);
    const std::vector<int> counts(lengths.begin(), lengths.end());
    std::vector<int> offsets(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
    std::string joined(static_cast<std::size_t>(offsets.back() + counts.back()), '\0');
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallgatherv(text.data(), counts[static_cast<std::size_t>(rank())], MPI_CHAR,
                              joined.data(), counts.data(), offsets.data(), MPI_CHAR, impl_->comm,
                              &request),
              "MPI_Iallgatherv");
    complete(request, *impl_, "an all-gather of texts");
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        texts.push_back(joined.substr(static_cast<std::size_t>(offsets[i]),
                                      static_cast<std::size_t>(counts[i])));
    }
    return texts;
}

}  // namespace fullshard::comm
