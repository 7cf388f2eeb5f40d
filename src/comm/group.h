// A set of ranks, and the small collectives that steer a run. Bulk data goes through Communicator.
#pragma once

#include "comm/ledger.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace fullshard::comm {

enum class Reduction : std::uint8_t { kSum, kMin, kMax };

/// Whether ranks compare their calls before they run: messages of their own, and waits for the
/// slowest rank, in exchange for a message that names both calls instead of a hang.
enum class CollectiveCheck : std::uint8_t { kOff, kOn };

/// An MPI communicator with errors returned. Copies share the handle. All calls below are
/// collective over the group unless said otherwise, wait for peers no longer than the deadline, and
/// throw CommunicationError, which is a TimeoutError where a peer is late. Making and splitting
/// groups are MPI's own calls, which know no deadline: there the watchdog's holds.
class Group {
  public:
    Group() = default;  ///< no ranks: size() is 0

    /// All ranks of the job, on a communicator of our own. MPI must be initialised. Groups made
    /// from this one note their calls in the same `ledger`, and all or none of them are checked.
    static Group world(double timeout_s,
                       std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>(),
                       CollectiveCheck check = CollectiveCheck::kOff);
    /// This rank alone, with a ledger of its own (not collective).
    static Group self(double timeout_s);

    int rank() const;
    int size() const;
    double timeout_s() const;
    Ledger& ledger() const;
    /// By rank of the group: rank of the job.
    const std::vector<int>& members() const;

    /// Ranks with equal `color` form a group, ordered by (key, rank); a negative color gives none.
    /// Reports and errors call it `name`, which must be equal on its ranks.
    Group split(int color, int key, std::string name = "group") const;
    /// Ranks that can share memory form a group.
    Group split_by_shared_memory() const;
    /// The same ranks with another name, deadline and check.
    Group renewed(std::string name, double timeout_s, CollectiveCheck check) const;

    void barrier() const;
    void all_reduce(std::span<std::int64_t> values, Reduction reduction) const;
    void all_reduce(std::span<double> values, Reduction reduction) const;
    /// `all` holds size() * mine.size() values, in rank order. Every rank passes as many.
    void all_gather(std::span<const double> mine, std::span<double> all) const;
    void all_gather(std::span<const std::int64_t> mine, std::span<std::int64_t> all) const;
    /// Rank `root`'s text on every rank.
    std::string broadcast(std::string text, int root) const;
    /// Every rank's text, in rank order.
    std::vector<std::string> all_gather(const std::string& text) const;

    struct Impl;
    const Impl& impl() const { return *impl_; }

  private:
    explicit Group(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

}  // namespace fullshard::comm
