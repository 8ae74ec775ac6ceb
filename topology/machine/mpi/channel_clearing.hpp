// SPDX-License-Identifier: Apache-2.0
// Clears a channel of unreceived messages before it is used again.
//
// Messages that nobody received outlive their exchange: MPI keeps them for the next receive with their tag. So a
// process that opens a channel again sends a marker to each process that may have such messages from it. That process
// takes out of MPI everything that comes before the marker. MPI keeps the order of two messages only for receives that
// match both, so it matches every message of that process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "topology/base/keep.hpp"
#include "topology/machine/mpi/arrived_messages.hpp"
#include "topology/machine/mpi/set_up_messages.hpp"

namespace lockstep {

// Holds the processes that may have unreceived messages. The value is the size of the shortest that its sender has
// given up, in bytes; SIZE_MAX if there is none. The memory of such a message may be gone, so nobody may receive it.
using UnreceivedMessages = std::map<int, std::size_t>;

// Waits for the marker of a process on a channel, and holds what came before it.
class AwaitedMarker {
 public:
  // `generation` is the one that the process opens the channel for.
  AwaitedMarker(int channel, int source, std::uint32_t generation)
      : channel_(channel), source_(source), generation_(generation) {}
  AwaitedMarker(AwaitedMarker&&) noexcept = default;
  AwaitedMarker& operator=(AwaitedMarker&&) noexcept = default;
  // Keeps the bytes of a marker that has not come whole, since MPI may write to them at any time.
  ~AwaitedMarker() {
    if (marker_ && marker_->bytes) keep_forever(std::move(marker_->bytes));
  }

 private:
  friend class ChannelClearing;
  int channel_;
  int source_;
  std::uint32_t generation_;
  std::vector<MatchedMessage> leftovers_;
  std::optional<SetUpReceive> marker_;
  std::size_t given_up_ = SIZE_MAX;  // bytes of the shortest message that must not be received
};

// Sends markers, and takes out of MPI the messages before them.
class ChannelClearing {
 public:
  // The arguments must outlive this object.
  ChannelClearing(MpiCommunicator& comm, ArrivedMessages& arrived, SetUpMessages& set_up)
      : comm_(comm), arrived_(arrived), set_up_(set_up) {}

  // Adds processes that may have unreceived messages of this one's on the channel.
  void note_unreceived(int channel, const UnreceivedMessages& by_process);
  // Returns these processes, and forgets them.
  UnreceivedMessages take_unreceived(int channel);
  void send_marker(int channel, int process, std::uint32_t generation, std::size_t given_up);
  // Returns true once the marker is here, and all before it is dropped. Never blocks.
  bool is_clear(AwaitedMarker& awaited);

 private:
  void drop_leftovers(AwaitedMarker& awaited);
  int marker_tag(int channel) const { return comm_.tags().set_up(channel, marker_kind); }

  static constexpr int marker_kind = 6;  // the other kinds are those of MpiExchange

  MpiCommunicator& comm_;
  ArrivedMessages& arrived_;
  SetUpMessages& set_up_;
  std::map<int, UnreceivedMessages> unreceived_;  // by channel
};

}  // namespace lockstep
