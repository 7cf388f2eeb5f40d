// Communicator on host memory over MPI point-to-point messages.
#pragma once

#include "comm/communicator.h"
#include "comm/group.h"
#include "comm/ledger.h"
#include "comm/progress.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fullshard::comm {

/// Why not MPI's own collectives: Open MPI 4.1 allocates a scratch of the whole buffer on every
/// reduce-scatter, its nonblocking one reduces everything to rank 0, and none of them fixes the
/// order of summation. All-to-all messages and a local sum move the same bytes as a ring.
///
/// Messages are cut at `max_message_bytes` (counts in MPI are int). Operations advance inside
/// `ready` and `wait`, and whenever anything that shares `progress` waits.
class MpiCommunicator final : public Communicator {
  public:
    /// What a channel carries, for reports and errors: "gather of blocks.2".
    using ChannelName = std::function<std::string(int channel)>;

    static constexpr std::int64_t kMaxMessageBytes = std::int64_t{256} << 20;

    /// `max_message_bytes` must be equal on all ranks. At most one communicator a group: two would
    /// take each other's messages.
    MpiCommunicator(const Group& group, Progress& progress, ChannelName channel_name = {},
                    std::int64_t max_message_bytes = kMaxMessageBytes);
    ~MpiCommunicator() override;

    int rank() const override { return group_.rank(); }
    int size() const override { return group_.size(); }
    Handle all_gather(const RankBlocks& blocks, int channel) override;
    Handle reduce_scatter(const RankBlocks& blocks, TypedSpan out, TypedSpan scratch,
                          int channel) override;
    Handle all_reduce(TypedSpan values, TypedSpan scratch, int channel) override;
    Handle broadcast(TypedSpan values, int root, int channel) override;
    std::int64_t bytes_received() const override { return bytes_received_; }

  private:
    struct Operation;
    struct UnevenBlocks;

    bool ready(std::int64_t operation) override;
    void wait(std::int64_t operation) override;
    /// Notes the call and lets `post` send and receive its messages, at once or, where comm.check
    /// is on, when it is known that all ranks make it.
    template <typename Post>
    Handle launch(int channel, const Call& call, Post post);
    std::int64_t track_of(int channel);
    Wait wait_of(const Operation& operation) const;
    void post_send(Operation& operation, int peer, const std::byte* data, std::int64_t bytes);
    void post_receive(Operation& operation, int peer, std::byte* data, std::int64_t bytes);
    void exchange_for_sum(Operation& operation, const UnevenBlocks& blocks, TypedSpan scratch);
    bool messages_complete(Operation& operation);
    bool advance(Operation& operation);
    /// Whether any is not complete yet.
    bool advance_all();

    Group group_;
    Progress& progress_;
    ChannelName channel_name_;
    std::int64_t max_message_bytes_;
    std::vector<std::int64_t> tracks_;  ///< in the ledger, by channel; -1: not used so far
    std::int64_t bytes_received_ = 0;
    std::vector<std::unique_ptr<Operation>>
        operations_;  ///< recycled: none is freed before the end
    Progress::Registration registration_;
};

}  // namespace fullshard::comm
