// SPDX-License-Identifier: Apache-2.0
// The class behind mpi_transport(), for those who may see MPI. Messages are kept apart by their tag alone: the
// exchange's channel, the lane, and as many bits of the call tag as fit (TagLayout).
//
// MPI gets memory to write to only when a message of the right length is there (MPI_Iprobe), although posting receives
// ahead is up to 0.3 us faster between processes of a node. A longer message than was posted for is an error to MPI,
// but Open MPI 4.1.4 writes all of it: 9000 bytes into 100, between processes of a node by its default, over TCP from
// half a megabyte on (mca_pml_ob1_recv_request_progress_rget takes the sender's length). And MPICH 4.0 does not say
// how long it was. What was not given to MPI needs no calling back after a failure, either.
#pragma once

#include <mpi.h>

#include <deque>
#include <string>
#include <vector>

#include "collectives/engine/transport.hpp"
#include "topology/machine/mpi/mpi_exchange.hpp"

namespace lockstep {

class MpiTransport final : public Transport {
 public:
  static constexpr std::size_t largest_chunk = std::size_t{1} << 30U;  // counts of MPI 3 end at 2^31-1

  explicit MpiTransport(MpiExchange& exchange, std::size_t chunk = largest_chunk);
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  int rank() const override { return exchange_.rank(); }
  int size() const override { return exchange_.size(); }
  int lanes() const override { return wire_->tags().call_lanes(); }
  std::uint32_t exchange_tags() const override { return 1U << static_cast<unsigned>(wire_->tags().message_bits()); }
  std::uint32_t generation() const override { return generation_; }

  void post(RoundTag round_tag, std::span<const SendDescriptor> sends,
            std::span<const ReceiveDescriptor> receives) override;
  bool done(int lane) override;
  // Waits at most a second in all for what is on its way; warns of what is still on its way then.
  bool abandon() override;

  void tell(int peer, Bytes bytes) override;
  std::optional<SmallMessage> hear() override;

  void sleep(std::int64_t nanoseconds) override;
  void leave(const Bytes& last_words) override;

 private:
  // A message, or a part of a longer one.
  struct MessageChunk {
    int peer;
    std::byte* into;  // of a receive
    std::size_t bytes;
    std::size_t message;
  };
  // Its vectors keep their capacity from round to round.
  struct MpiLane {
    int tag = 0;
    bool across = false;
    std::uint64_t turn = 0;             // among the rounds of exchanges
    std::vector<MessageChunk> awaited;  // in the order of their posting
    std::vector<MPI_Request> requests;  // not yet through, and what they are about
    std::vector<MessageChunk> parts;
    std::vector<int> finished;  // room for the answers of MPI
    std::vector<MPI_Status> statuses;

    bool idle() const { return awaited.empty() && requests.empty(); }
    void reserve(std::size_t receives, std::size_t sends);
    void forget_finished();
  };

  int on_wire(int peer) const { return exchange_.process_of(peer); }
  // What is sent to a thread of a process, or comes from one, has tags of its own, as far from the lane's.
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
  std::deque<Bytes> own_words_;          // to oneself
  std::vector<std::uint64_t> silent_;    // the last pass in which nothing from the member had arrived
  std::uint64_t pass_ = 0;
  std::uint64_t turns_ = 0;
};

}  // namespace lockstep
