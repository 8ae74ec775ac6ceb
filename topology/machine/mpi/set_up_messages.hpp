// SPDX-License-Identifier: Apache-2.0
// Sends and receives set-up messages over MPI. Nothing here blocks.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "topology/base/bytes.hpp"
#include "topology/machine/mpi/arrived_messages.hpp"
#include "topology/machine/mpi/mpi_communicator.hpp"

namespace lockstep {

struct ReceivedMessage {
  int source;
  Bytes bytes;
};

// Is a message that MPI still receives.
struct SetUpReceive {
  MPI_Request request;
  int source;
  std::unique_ptr<Bytes> bytes;
};

// Owns the bytes of set-up messages while MPI sends or receives them.
class SetUpMessages {
 public:
  // `comm` and `arrived` must outlive this object.
  SetUpMessages(MpiCommunicator& comm, ArrivedMessages& arrived)
      : comm_(comm), arrived_(arrived), sent_(static_cast<std::size_t>(comm.size())) {}

  // Starts a send, and keeps the bytes until MPI has sent them. Throws Error usage for 2 GiB and more.
  void send(int target, int tag, Bytes bytes);
  // Returns true when MPI has sent all messages of a channel.
  bool flushed(int channel);
  // Returns a whole message that is here, or nothing. `source` may be any (-1).
  std::optional<ReceivedMessage> try_receive(int source, int tag);

  // Leave messages to MPI after a failure, so that nothing waits for them: those of a channel that this process sends,
  // those of a channel that it receives, and all.
  void abandon_leaving(int channel);
  void abandon_arriving(int channel);
  void abandon_all();

  // The callers of these functions have entered the communicator.

  // Starts to receive a message that was taken out of MPI's queue.
  static SetUpReceive receive(MatchedMessage matched);
  // Receives a message that nobody waits for.
  void drop(const MatchedMessage& matched) { dropping_.push_back(receive(matched)); }
  // Drops half-received messages of an exchange that ended before they had come whole.
  void drop_arriving(int source, int channel);
  // Forgets the messages that MPI has sent, or has received for nobody.
  void forget_finished();
  // Returns true if MPI has sent everything, as of the last forget_finished().
  bool is_all_sent() const { return leaving_.empty(); }
  // Returns the number of messages sent to each rank.
  const std::vector<std::int64_t>& sent() const { return sent_; }

 private:
  struct SetUpSend {
    int channel;
    MPI_Request request;
    std::unique_ptr<Bytes> bytes;
  };
  using SourceTag = std::pair<int, int>;  // wanted source (-1: any), tag

  template <class Message>
  void abandon(Message& message);

  MpiCommunicator& comm_;
  ArrivedMessages& arrived_;
  std::vector<std::int64_t> sent_;
  std::vector<SetUpSend> leaving_;
  std::size_t forget_at_ = 16;  // the number of leaving messages at which finished ones are looked for
  std::map<SourceTag, SetUpReceive> arriving_;
  std::vector<SetUpReceive> dropping_;  // nobody waits for these
};

}  // namespace lockstep
