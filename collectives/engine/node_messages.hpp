// SPDX-License-Identifier: Apache-2.0
// Matches the messages between this member and one other of its node with sends and receives, and moves their data.
//
// A NodeTransport owns one for each member of the node, this one included. Nothing here waits.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/engine/transport.hpp"
#include "collectives/node/message_ring.hpp"
#include "collectives/node/room.hpp"

namespace lockstep {

// Counts the messages of a round that are not complete yet.
struct RoundMessages {
  std::size_t sends_left = 0;
  std::size_t receives_left = 0;
};

// Holds the bytes of a message from which on it is better read where it lies: by cores whose writes through the caches
// are fast, and by others.
struct ReadLimits {
  std::size_t near_cores;
  std::size_t far_cores;
};

// Sends this member's messages to one other member.
class NodeSends {
 public:
  NodeSends(node::Room& room, node::TakenCells& taken, int to);

  // Sends a message, or keeps it until there is space. The data stay until the round is complete.
  void send(std::uint64_t key, const std::byte* data, std::size_t bytes, RoundMessages& round);
  // Copies a message into the ring. Returns false if it must wait, or is better left with the sender. `is_exchanged`:
  // the other member probably sends one at this time, too.
  bool try_copy(std::uint64_t key, const std::byte* data, std::size_t bytes, bool is_exchanged) {
    return waiting_.empty() && bytes <= (is_exchanged ? most_exchanged_ : most_eager_) && !is_better_read(bytes) &&
           sender_.copy(key, data, bytes);
  }
  // Sends more of the messages that wait. Returns true if anything moved.
  bool advance();
  bool is_idle() const { return waiting_.empty() && announced_.empty(); }
  void abandon();

 private:
  // Is a message that was not sent yet, or not wholly.
  struct UnfinishedSend {
    std::uint64_t key = 0;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    RoundMessages* round = nullptr;
    int acknowledgement = -1;
    std::size_t sent = 0;  // bytes in fragments
  };

  bool is_better_read(std::size_t bytes) const {
    if (bytes < read_limits_.far_cores) return false;
    return bytes >= read_limits_.near_cores || write_strategy_.bypasses_caches(bytes, slow_write_from_);
  }
  bool begin(UnfinishedSend& message);
  bool advance(UnfinishedSend& message);

  node::Room& room_;
  std::size_t slow_write_from_;
  node::WriteStrategy write_strategy_;  // of its own, since other members may be nearer or further
  node::MessageSender sender_;
  ReadLimits read_limits_;
  // Are the most bytes of a message that goes into the ring as a whole, and of one that is exchanged for another.
  std::size_t most_eager_;
  std::size_t most_exchanged_;
  std::vector<UnfinishedSend> waiting_;  // in the order of their sends
  std::vector<UnfinishedSend> announced_;
};

// Receives the messages of one other member.
class NodeReceives {
 public:
  // `from` is the other member's index in the room. The ranks are those of the communicator, for errors.
  NodeReceives(node::Room& room, node::TakenCells& taken, int from, int from_rank, int own_rank);

  // Receives a message into `data`, now or later.
  void receive(std::uint64_t key, std::byte* data, std::size_t bytes, RoundMessages& round);
  // Receives a message if it is the next one in the ring.
  TryResult try_take(std::uint64_t key, std::byte* data, std::size_t bytes) {
    if (!wanted_.empty() || !early_.empty()) return TryResult::needs_lane;
    const node::MessageCell* const cell = receiver_.next();
    if (cell == nullptr) return TryResult::nothing_came;
    if (cell->key != key || cell->bytes != bytes || cell->kind > node::MessageKind::in_bytes)
      return TryResult::needs_lane;
    receiver_.take(*cell, data);
    return TryResult::done;
  }
  // Takes the messages that have come. Throws Error mismatch if one has another length than its receive.
  bool advance();
  bool is_idle() const { return wanted_.empty() && incoming_.empty(); }
  void abandon();

 private:
  struct WantedMessage {
    std::uint64_t key;
    std::byte* data;
    std::size_t bytes;
    RoundMessages* round;
  };
  // Is a message that came before its receive: its data, or its announcement.
  struct EarlyMessage {
    std::uint64_t key;
    std::size_t bytes;
    node::MessageKind kind;
    std::uint64_t address;
    std::uint32_t acknowledgement;
    std::vector<std::byte> data;
  };
  // Is an announced message whose data are on their way.
  struct IncomingMessage {
    WantedMessage wanted;
    std::uint64_t address;  // where the data are read; 0: they come in fragments
    std::uint32_t acknowledgement;
    std::size_t received = 0;
  };

  void check_length(std::uint64_t sent, std::size_t wanted) const;
  void take(const node::MessageCell& cell);
  void keep(const node::MessageCell& cell);
  void take_fragment(const node::MessageCell& cell);
  void begin(const WantedMessage& wanted, std::uint64_t address, std::uint32_t acknowledgement);
  bool read(IncomingMessage& message);

  node::Room& room_;
  int from_;
  int from_rank_;
  int own_rank_;
  node::MessageReceiver receiver_;
  std::vector<WantedMessage> wanted_;  // in the order of their receives
  std::vector<EarlyMessage> early_;    // in the order of their sends
  std::vector<IncomingMessage> incoming_;
  std::vector<std::vector<std::byte>> spare_;  // memory of early messages, for the next ones
};

}  // namespace lockstep
