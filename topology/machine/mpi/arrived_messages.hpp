// SPDX-License-Identifier: Apache-2.0
// Takes messages out of MPI's queue of those that have arrived.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "topology/machine/mpi/mpi_communicator.hpp"

namespace lockstep {

// Was taken out of MPI's queue, and is not received yet.
struct MatchedMessage {
  int source;
  int tag;
  std::size_t bytes;
  MPI_Message message;
};

// Finds the messages of a communicator that have arrived. A search for the messages of one channel takes out others as
// well; these are kept aside, in their order, for the exchanges that they belong to.
class ArrivedMessages {
 public:
  // `comm` must outlive this object.
  explicit ArrivedMessages(MpiCommunicator& comm) : comm_(comm) {}

  // Returns the bytes of the next message of data that is here. The caller holds MpiCommunicator::Access.
  std::optional<std::size_t> next_bytes(int source, int tag);
  // Starts to receive that message. The caller holds MpiCommunicator::Access, and keeps `into` until the request is
  // done.
  MPI_Request receive_next(int source, int tag, std::byte* into, std::size_t bytes);

  // The callers of these functions have entered the communicator.

  // Takes the next message from the source (any: -1) with the tag.
  std::optional<MatchedMessage> take(int source, int tag);
  // Takes the next message from the source on the channel.
  std::optional<MatchedMessage> take_of_channel(int source, int channel);
  // Receives and drops one set-up message, and returns true if there was one. Unreceived data may lie in memory that is
  // gone: it is left alone, and so is everything behind it. The communicator is then left to MPI.
  bool drop_one();
  // Returns the number of set-up messages that were taken.
  std::int64_t set_up_count() const { return set_up_count_; }
  // Returns true if messages are kept aside.
  bool has_aside() const { return has_aside_; }

 private:
  std::optional<MatchedMessage> match(int source, int tag);
  template <class Fits>
  std::optional<MatchedMessage> take_aside(const Fits& fits);

  MpiCommunicator& comm_;
  std::int64_t set_up_count_ = 0;
  std::mutex aside_mutex_;  // guards the next two; taken last
  std::vector<MatchedMessage> aside_;
  std::atomic<bool> has_aside_ = false;
};

}  // namespace lockstep
