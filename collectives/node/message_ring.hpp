// SPDX-License-Identifier: Apache-2.0
// Are the two ends of the rings through which one member of a room sends messages to another. Nothing here waits, and
// nothing matches messages with receives.
//
// The rule that frees places: the receiver takes cells in their order, and copies the data of a cell out of the ring of
// bytes before it counts the cell as taken. The sender writes a cell, or bytes, only if enough have been taken. A
// cell's stamp is its number, so the receiver needs no other word to see a message.
#pragma once

#include <array>
#include <cstring>

#include "collectives/node/message_memory.hpp"

namespace lockstep::node {

// Writes the messages of this member for one other. One thread at a time may use it.
class MessageSender {
 public:
  explicit MessageSender(const MessageMemory& memory) : memory_(memory) {}

  // Copies the message into the rings. Returns false if it is too large for that, or there is no space now. A message
  // that was copied needs no more of its sender.
  bool copy(std::uint64_t key, const std::byte* data, std::size_t bytes) {
    if (bytes <= MessageCell::room) {
      if (!has_cell()) return false;
      MessageCell& cell = memory_.cell(sent_);
      if (bytes > 0) std::memcpy(cell.payload, data, bytes);
      publish(cell, {.key = key, .bytes = bytes, .place = 0, .kind = MessageKind::in_cell});
      return true;
    }
    return bytes <= memory_.most_eager() &&
           copy_to_bytes(data, {.key = key, .bytes = bytes, .place = 0, .kind = MessageKind::in_bytes});
  }
  // Announces a message whose data stay with the sender. Returns its acknowledgement; -1 if there is no space now. The
  // receiver may read at `data` if `is_readable`.
  int announce(std::uint64_t key, const std::byte* data, std::size_t bytes, bool is_readable);
  // Returns the receiver's answer to an announced message. Acknowledgement::done ends it.
  Acknowledgement answer(int acknowledgement) const {
    return memory_.receipts().acknowledgements[acknowledgement].load(std::memory_order_acquire);
  }
  // Frees the acknowledgement of a message that is over.
  void end(int acknowledgement) { is_used_ &= ~(std::uint32_t{1} << static_cast<unsigned>(acknowledgement)); }
  // Copies the next part of an announced message into the rings. Returns the bytes of that part; 0 if there is no
  // space.
  std::size_t copy_fragment(int acknowledgement, const std::byte* data, std::size_t bytes);

 private:
  struct CellFields {
    std::uint64_t key = 0;
    std::uint64_t bytes = 0;
    std::uint64_t place = 0;
    MessageKind kind = MessageKind::in_cell;
    std::uint32_t acknowledgement = 0;
  };

  bool has_cell() {
    if (sent_ - cells_taken_ < memory_.cells()) return true;
    cells_taken_ = memory_.receipts().cells_taken.load(std::memory_order_acquire);
    return sent_ - cells_taken_ < memory_.cells();
  }
  bool copy_to_bytes(const std::byte* data, CellFields fields);
  void publish(MessageCell& cell, const CellFields& fields) {
    cell.key = fields.key;
    cell.bytes = fields.bytes;
    cell.place = fields.place;
    cell.kind = fields.kind;
    cell.acknowledgement = fields.acknowledgement;
    cell.stamp.store(++sent_, std::memory_order_release);
  }

  MessageMemory memory_;
  std::uint64_t sent_ = 0;
  std::uint64_t cells_taken_ = 0;  // as last seen
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_taken_ = 0;  // as last seen
  std::uint32_t is_used_ = 0;      // a bit for each acknowledgement
};

// Reads the messages of one other member. One thread at a time may use it.
class MessageReceiver {
 public:
  explicit MessageReceiver(const MessageMemory& memory) : memory_(memory) {}

  // Returns the oldest message that was not taken; null if none has come.
  const MessageCell* next() const {
    const MessageCell& cell = memory_.cell(taken_);
    return cell.stamp.load(std::memory_order_acquire) == taken_ + 1 ? &cell : nullptr;
  }
  // Copies the data of a cell that next() returned, and takes it. Must not be called for an announcement.
  void take(const MessageCell& cell, std::byte* to);
  // Takes an announcement.
  void take() { memory_.receipts().cells_taken.store(++taken_, std::memory_order_release); }
  // Answers an announcement.
  void acknowledge(std::uint32_t acknowledgement, Acknowledgement answer) {
    memory_.receipts().acknowledgements[acknowledgement].store(answer, std::memory_order_release);
  }

 private:
  MessageMemory memory_;
  std::uint64_t taken_ = 0;
};

}  // namespace lockstep::node
