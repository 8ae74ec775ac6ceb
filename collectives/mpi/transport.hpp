// SPDX-License-Identifier: Apache-2.0
// Declares the class behind mpi_transport() for files that include MPI. Only tags keep messages apart: they hold the
// exchange's channel, the lane, and as many bits of the call tag as fit (TagLayout).
//
// MPI gets memory only after a message of the right length has arrived (MPI_Iprobe). Posting receives ahead would be up
// to 0.3 us faster between processes of a node. But a message that is too long is an error to MPI, and Open MPI 4.1.4
// writes all of it. It wrote 9000 bytes into 100 between processes of a node, by default. Over TCP it does so from half
// a megabyte on (mca_pml_ob1_recv_request_progress_rget takes the sender's length). MPICH 4.0 does not report the
// length. Memory that MPI never got also needs no recall after a failure.
#pragma once

#include <mpi.h>

#include <deque>
#include <string>
#include <vector>

#include "collectives/engine/transport.hpp"
#include "topology/machine/mpi/mpi_exchange.hpp"

namespace lockstep {

// Implements Transport over MPI. One thread at a time may use it.
class MpiTransport final : public Transport {
 public:
  // Limits a part of a message in bytes, since counts of MPI 3 end at 2^31-1.
  static constexpr std::size_t largest_chunk = std::size_t{1} << 30U;

  // Uses the exchange, which must outlive it. Tests choose a small `chunk`, in bytes.
  explicit MpiTransport(MpiExchange& exchange, std::size_t chunk = largest_chunk);
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  int rank() const override { return exchange_.rank(); }
  int size() const override { return exchange_.size(); }
  int lanes() const override { return wire_->comm().tags().call_lanes(); }
  std::uint32_t message_tags() const override {
    return 1U << static_cast<unsigned>(wire_->comm().tags().message_bits());
  }
  std::uint32_t generation() const override { return generation_; }

  void post(RoundTag round_tag, std::span<const SendDescriptor> sends,
            std::span<const ReceiveDescriptor> receives) override;
  bool done(int lane) override;
  // Waits at most a second for messages under way, and logs a warning that lists the rest.
  bool abandon() override;

  void send_control(int peer, Bytes bytes) override;
  std::optional<ReceivedControl> receive_control() override;

  void sleep(std::int64_t nanoseconds) override;
  void leave(const Bytes& leave_message) override;

 private:
  // Describes a message, or a part of a longer one.
  struct MessageChunk {
    int peer;
    std::byte* into;  // null for a send
    std::size_t bytes;
    std::size_t message;  // bytes of the whole message
  };
  // Holds the round of one lane. Its vectors keep their memory from round to round.
  struct MpiLane {
    int tag = 0;
    bool across = false;
    std::uint64_t turn = 0;             // orders the rounds of point-to-point messages
    std::vector<MessageChunk> awaited;  // in the order of posting
    // Holds the requests under way, and in `parts` their messages.
    std::vector<MPI_Request> requests;
    std::vector<MessageChunk> parts;
    std::vector<int> finished;  // room for MPI's answers
    std::vector<MPI_Status> statuses;

    bool idle() const { return awaited.empty() && requests.empty(); }
    void reserve(std::size_t receives, std::size_t sends);
    void forget_finished();
  };

  // Returns the MPI rank of the process that runs a member.
  int on_wire(int peer) const { return exchange_.process_of(peer); }
  // Messages to and from threads of a process have tags of their own, at a fixed distance from the lane's.
  int tag_to(const MpiLane& lane, int peer) const {
    return lane.tag + tag_offsets_.at(static_cast<std::size_t>(peer)).to;
  }
  int tag_from(const MpiLane& lane, int peer) const {
    return lane.tag + tag_offsets_.at(static_cast<std::size_t>(peer)).from;
  }
  std::size_t count_parts(std::size_t bytes) const;
  std::optional<std::size_t> arrived(const MpiLane& lane, int peer);
  bool another_is_first(const MpiLane& lane, int peer) const;
  std::string take_arrived(MpiLane& lane);
  void take_finished(MpiLane& lane);
  void drop_arrived(const MpiLane& lane);
  bool anything_on_its_way();
  void give_up_remaining();

  MpiExchange& exchange_;
  std::shared_ptr<Wire> wire_;
  std::uint32_t generation_;
  std::size_t chunk_;
  std::vector<MpiLane> lanes_;
  struct TagOffsets {
    int to;
    int from;
  };
  std::vector<TagOffsets> tag_offsets_;  // by member
  std::deque<Bytes> own_words_;          // to itself
  // Holds for each member the last pass in which nothing from it had arrived.
  std::vector<std::uint64_t> silent_;
  std::uint64_t pass_ = 0;
  std::uint64_t turns_ = 0;
};

}  // namespace lockstep
