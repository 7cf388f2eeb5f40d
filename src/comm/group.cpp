#include "comm/group.h"

#include "base/error.h"
#include "comm/collective_check.h"
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

namespace {

/// The job's ranks of a communicator's ranks.
std::vector<int> members_of(MPI_Comm comm) {
    int size = 0;
    check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    std::vector<int> members(ranks.size());
    MPI_Group job = MPI_GROUP_NULL;
    MPI_Group ours = MPI_GROUP_NULL;
    check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &job), "MPI_Comm_group");
    check_mpi(MPI_Comm_group(comm, &ours), "MPI_Comm_group");
    const int status = MPI_Group_translate_ranks(ours, size, ranks.data(), job, members.data());
    MPI_Group_free(&ours);
    MPI_Group_free(&job);
    check_mpi(status, "MPI_Group_translate_ranks");
    return members;
}

/// Polls until `done`, with the group's deadline.
template <typename Done>
void wait_until(const Pending& pending, Done&& done) {
    if (done()) return;
    Waiter waiter(pending.group.ledger(), pending.group.settings.timeout_s,
                  [&pending] { return pending.wait(); });
    while (!done()) waiter.pause();
}

}  // namespace

void complete(MPI_Request& request, const Pending& pending) {
    wait_until(pending, [&] {
        int done = 0;
        check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
        return done != 0;
    });
}

Group::Impl::Impl(MPI_Comm owned, GroupSettings chosen, std::string called)
    : comm(owned),
      settings(std::move(chosen)),
      name(std::move(called)),
      members(members_of(owned)) {
    check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    track = ledger().add_track(name, members);
    if (settings.check == CollectiveCheck::kOff) return;
    const Ledger::Blocking blocking(ledger(), {.track = track, .what = "MPI_Comm_dup"});
    check_mpi(MPI_Comm_dup(comm, &check_comm), "MPI_Comm_dup");
    check_mpi(MPI_Comm_set_errhandler(check_comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

Group::Impl::~Impl() {
    ledger().remove_track(track);
    // Freeing is collective: after an error the peers may never come, and the job is ending anyway.
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized != 0 || std::uncaught_exceptions() > 0) return;
    if (check_comm != MPI_COMM_NULL) MPI_Comm_free(&check_comm);
    MPI_Comm_free(&comm);
}

std::int64_t Group::Impl::begin(const Call& call) const {
    const std::int64_t sequence = ledger().begin(track, call);
    if (check_comm != MPI_COMM_NULL) {
        CallComparison comparison;
        comparison.begin(check_comm, /*tag=*/0, members, name, sequence, call);
        wait_until({*this, sequence, call}, [&] { return comparison.done(); });
    }
    return sequence;
}

Group Group::world(double timeout_s, std::shared_ptr<Ledger> ledger, CollectiveCheck check) {
    MPI_Comm comm = MPI_COMM_NULL;
    {
        const Ledger::Blocking blocking(*ledger, {.what = "MPI_Comm_dup of all ranks"});
        check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
    }
    return Group(std::make_shared<const Impl>(
        comm, GroupSettings{timeout_s, std::move(ledger), check}, "all ranks at start"));
}

Group Group::self(double timeout_s) {
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(MPI_COMM_SELF, &comm), "MPI_Comm_dup");
    return Group(std::make_shared<const Impl>(
        comm, GroupSettings{timeout_s, std::make_shared<Ledger>()}, "one rank"));
}

int Group::rank() const {
    return impl_ ? impl_->rank : 0;
}
int Group::size() const {
    return impl_ ? impl_->size : 0;
}
double Group::timeout_s() const {
    return impl_->settings.timeout_s;
}
Ledger& Group::ledger() const {
    return impl_->ledger();
}
const std::vector<int>& Group::members() const {
    return impl_->members;
}

Group Group::split(int color, int key, std::string name) const {
    MPI_Comm comm = MPI_COMM_NULL;
    {
        const auto blocking = impl_->block_in({.kind = "MPI_Comm_split"});
        check_mpi(MPI_Comm_split(impl_->comm, color < 0 ? MPI_UNDEFINED : color, key, &comm),
                  "MPI_Comm_split");
    }
    if (comm == MPI_COMM_NULL) return {};
    return Group(std::make_shared<const Impl>(comm, impl_->settings, std::move(name)));
}

Group Group::split_by_shared_memory() const {
    MPI_Comm comm = MPI_COMM_NULL;
    {
        const auto blocking = impl_->block_in({.kind = "MPI_Comm_split_type"});
        check_mpi(MPI_Comm_split_type(impl_->comm, MPI_COMM_TYPE_SHARED, impl_->rank, MPI_INFO_NULL,
                                      &comm),
                  "MPI_Comm_split_type");
    }
    return Group(std::make_shared<const Impl>(comm, impl_->settings, "ranks of a host"));
}

Group Group::renewed(std::string name, double timeout_s, CollectiveCheck check) const {
    MPI_Comm comm = MPI_COMM_NULL;
    {
        const auto blocking = impl_->block_in({.kind = "MPI_Comm_dup"});
        check_mpi(MPI_Comm_dup(impl_->comm, &comm), "MPI_Comm_dup");
    }
    return Group(std::make_shared<const Impl>(
        comm, GroupSettings{timeout_s, impl_->settings.ledger, check}, std::move(name)));
}

void Group::barrier() const {
    const Call call{.kind = "barrier"};
    const std::int64_t sequence = impl_->begin(call);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibarrier(impl_->comm, &request), "MPI_Ibarrier");
    complete(request, {*impl_, sequence, call});
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

/// An element type as MPI and as messages name it.
struct Element {
    MPI_Datatype mpi;
    std::string_view name;
};
const Element kInt64{MPI_INT64_T, "int64"};
const Element kDouble{MPI_DOUBLE, "fp64"};

template <typename T>
void all_reduce_small(const Group::Impl& group, std::span<T> values, const Element& element,
                      Reduction reduction) {
    const Call call{.kind = "all_reduce", .count = std::ssize(values), .type = element.name};
    const std::int64_t sequence = group.begin(call);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()),
                             element.mpi, operation(reduction), group.comm, &request),
              "MPI_Iallreduce");
    complete(request, {group, sequence, call});
}

template <typename T>
void all_gather_small(const Group::Impl& group, std::span<const T> mine, std::span<T> all,
                      const Element& element) {
    ensure(all.size() == mine.size() * static_cast<std::size_t>(group.size),
           "all_gather's result has one part a rank");
    const Call call{.kind = "all_gather", .count = std::ssize(mine), .type = element.name};
    const std::int64_t sequence = group.begin(call);
    const int count = static_cast<int>(mine.size());
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallgather(mine.data(), count, element.mpi, all.data(), count, element.mpi,
                             group.comm, &request),
              "MPI_Iallgather");
    complete(request, {group, sequence, call});
}

}  // namespace

void Group::all_reduce(std::span<std::int64_t> values, Reduction reduction) const {
    all_reduce_small(*impl_, values, kInt64, reduction);
}

void Group::all_reduce(std::span<double> values, Reduction reduction) const {
    all_reduce_small(*impl_, values, kDouble, reduction);
}

void Group::all_gather(std::span<const double> mine, std::span<double> all) const {
    all_gather_small(*impl_, mine, all, kDouble);
}

void Group::all_gather(std::span<const std::int64_t> mine, std::span<std::int64_t> all) const {
    all_gather_small(*impl_, mine, all, kInt64);
}

std::string Group::broadcast(std::string text, int root) const {
    const Call call{.kind = "broadcast of a text", .root = root};
    const std::int64_t sequence = impl_->begin(call);
    std::int64_t length = static_cast<std::int64_t>(text.size());
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibcast(&length, 1, MPI_INT64_T, root, impl_->comm, &request), "MPI_Ibcast");
    complete(request, {*impl_, sequence, call});
    text.resize(static_cast<std::size_t>(length));
    check_mpi(
        MPI_Ibcast(text.data(), static_cast<int>(length), MPI_CHAR, root, impl_->comm, &request),
        "MPI_Ibcast");
    complete(request, {*impl_, sequence, call});
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
    const Call call{.kind = "all_gather of texts"};
    const std::int64_t sequence = impl_->begin(call);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallgatherv(text.data(), counts[static_cast<std::size_t>(rank())], MPI_CHAR,
                              joined.data(), counts.data(), offsets.data(), MPI_CHAR, impl_->comm,
                              &request),
              "MPI_Iallgatherv");
    complete(request, {*impl_, sequence, call});
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        texts.push_back(joined.substr(static_cast<std::size_t>(offsets[i]),
                                      static_cast<std::size_t>(counts[i])));
    }
    return texts;
}

}  // namespace fullshard::comm
