// SPDX-License-Identifier: Apache-2.0
// Divides the part of a room's memory through which two of its members send each other messages. Each ordered pair of
// members has a ring of cells, which hold small messages, and two rings of bytes for larger ones. What goes through the
// short ring stays in the first caches of both cores. Nothing here moves data; see MessageSender and MessageReceiver.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/node/room_memory.hpp"

namespace lockstep::node {

// Says how a message travels, or that a cell holds a part of one.
enum class MessageKind : std::uint32_t {
  in_cell,    // The data are in the cell.
  in_bytes,   // The data are in a ring of bytes.
  announced,  // The data are still with the sender, which has an acknowledgement for the message.
  fragment,   // Holds the next data of an announced message, in a ring of bytes.
};

// Holds one message, or announces it. Its sender writes it, and then its stamp: the number of the cell, from 1.
struct alignas(line_size) MessageCell {
  static constexpr std::size_t room = line_size - 6 * sizeof(std::uint64_t);
  std::atomic<std::uint64_t> stamp;
  std::uint64_t key;    // matches the receive
  std::uint64_t bytes;  // of the message; of a fragment: of this part
  // Is the place of the data in the memory of the two rings of bytes, or the address of announced data.
  std::uint64_t place;
  std::uint64_t taken;  // cells that the sender has taken from the other direction's ring
  MessageKind kind;
  std::uint32_t acknowledgement;  // of an announced message
  std::byte payload[room];
};
static_assert(sizeof(MessageCell) == line_size);

// Tells the sender of an announced message how its receiver goes on: it waits for fragments, or has read all.
enum class Acknowledgement : std::uint32_t { none, send, done };

// Is the part of a pair's memory that only the receiver writes, except that the sender resets an acknowledgement before
// it announces a message.
struct alignas(line_size) MessageReceipts {
  static constexpr std::uint32_t most_announced = 24;  // messages of a pair at once; more wait, a guess
  std::atomic<std::uint64_t> cells_taken;
  std::atomic<Acknowledgement> acknowledgements[most_announced];
};

// Holds the division for some number of members, in bytes or cells. A pair's memory is touched when the pair sends.
struct MessageLayout {
  explicit MessageLayout(int members);
  std::size_t cells;  // of a pair
  std::size_t ring;   // bytes of a pair's long ring of bytes; a power of two, as the next is
  std::size_t short_ring;
  std::size_t stride;  // from pair to pair
  std::size_t bytes;   // of all pairs
};

// Knows the places of one pair. It is a value; the memory lives as long as a copy of the RoomMemory.
class MessageMemory {
 public:
  static constexpr std::size_t most_cells = 32;  // a guess

  // Finds the memory of messages from one member to another in a room.
  MessageMemory(const RoomMemory& room, int from, int to);

  std::size_t cells() const { return cells_; }
  std::size_t ring_bytes() const { return ring_bytes_; }
  // Returns the bytes of the short ring, which lies behind the long one.
  std::size_t short_ring_bytes() const { return short_ring_bytes_; }
  // Returns the bytes of a part of a large message. A guess: several fit into the ring, and the receiver begins to copy
  // before the sender has copied much more.
  std::size_t part_bytes() const { return std::min(most_at_once(), std::size_t{64} << 10U); }
  // Returns the most bytes of a message that go into the ring as a whole; a guess.
  std::size_t most_at_once() const { return ring_bytes_ / 4; }
  MessageReceipts& receipts() const { return *receipts_; }
  MessageCell& cell(std::uint64_t number) const { return first_cell_[number & (cells_ - 1)]; }
  std::byte* at(std::uint64_t place) const { return ring_ + place; }

 private:
  std::size_t cells_;
  std::size_t ring_bytes_;
  std::size_t short_ring_bytes_;
  MessageReceipts* receipts_;
  MessageCell* first_cell_;
  std::byte* ring_;
};

}  // namespace lockstep::node
