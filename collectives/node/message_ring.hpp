// SPDX-License-Identifier: Apache-2.0
// Are the two ends of the rings through which one member of a room sends messages to another. Nothing here waits, and
// nothing matches messages with receives.
//
// The rule that frees places: the receiver takes cells in their order, and copies the data of a cell out of its ring of
// bytes before it counts the cell as taken. The sender keeps in mind how far its cells have filled the rings of bytes,
// and writes a cell, or bytes, only if enough cells have been taken. A cell's stamp is its number, so the receiver
// needs no other word to see a message.
//
// The count of taken cells is a word that only the receiver writes, and the sender has to fetch it from the other core.
// So every cell also carries that count for the other direction. Two members that send each other messages in turns
// never fetch the word.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/node/message_memory.hpp"
#include "collectives/node/write_strategy.hpp"

namespace lockstep::node {

// Counts the cells that were taken of the two directions between this member and another one. The MessageSender and the
// MessageReceiver for that one share it, and use it in one thread at a time.
struct TakenCells {
  std::uint64_t here = 0;   // by this member
  std::uint64_t there = 0;  // by the other one, as last seen
};

// Is the sender's account of a ring of bytes: what it has filled there, and with which cell. The receiver frees it cell
// by cell. Positions never wrap.
class ByteRing {
 public:
  // Lies at `begin` in the memory of all rings of bytes.
  ByteRing(std::size_t begin, std::size_t bytes) : begin_(begin), bytes_(bytes) {}

  std::size_t bytes() const { return bytes_; }
  // True if data fit there after so many cells have been taken. Must not be asked with more cells under way than the
  // ring of cells holds.
  bool has_space(std::size_t bytes, std::uint64_t taken) const { return next(bytes) + bytes - freed(taken) <= bytes_; }
  // Takes space for data, and returns its place in the memory of all rings.
  std::uint64_t fill(std::size_t bytes) {
    const std::uint64_t begin = next(bytes);
    filled_ = round_up(begin + bytes, cache_line);  // the next data begin at a cache line
    return begin_ + (begin & (bytes_ - 1));
  }
  // True until all of the ring has been filled once. The system gives it pages meanwhile, which takes longer than a
  // copy.
  bool is_fresh() const { return filled_ < bytes_; }
  // Notes how far the ring is filled with a cell.
  void note(std::uint64_t cell) { filled_with_[cell % filled_with_.size()] = filled_; }

 private:
  // Returns where data begin: at the next line, or at the ring's begin if the rest is too short.
  std::uint64_t next(std::size_t bytes) const {
    const std::size_t before_end = bytes_ - (filled_ & (bytes_ - 1));
    return bytes <= before_end ? filled_ : filled_ + before_end;
  }
  std::uint64_t freed(std::uint64_t taken) const {
    return taken == 0 ? 0 : filled_with_[(taken - 1) % filled_with_.size()];
  }

  std::size_t begin_;
  std::size_t bytes_;  // a power of two
  std::uint64_t filled_ = 0;
  std::array<std::uint64_t, 2 * MessageMemory::most_cells> filled_with_ = {};
};

// Writes the messages of this member for one other. One thread at a time may use it.
class MessageSender {
 public:
  // `slow_write_from` is that of Tuning, for the strategy by which this member writes data that others read.
  MessageSender(const MessageMemory& memory, TakenCells& taken, WriteStrategy& write_strategy,
                std::size_t slow_write_from)
      : memory_(memory),
        taken_(taken),
        write_strategy_(write_strategy),
        slow_write_from_(slow_write_from),
        long_(0, memory.ring_bytes()),
        short_(memory.ring_bytes(), memory.short_ring_bytes()) {}

  // Copies a message of at most MessageMemory::most_at_once() into the rings. Returns false if there is no space for it
  // now. A message that was copied needs no more of its sender.
  bool copy(std::uint64_t key, const std::byte* data, std::size_t bytes) {
    if (bytes <= MessageCell::room) {
      if (!has_cell()) return false;
      MessageCell& cell = memory_.cell(sent_);
      if (bytes > 0) std::memcpy(cell.payload, data, bytes);
      publish(cell, {.key = key, .bytes = bytes, .place = 0, .kind = MessageKind::in_cell});
      return true;
    }
    return copy_to_bytes(data, {.key = key, .bytes = bytes, .place = 0, .kind = MessageKind::in_bytes});
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
    if (sent_ - taken_.there < memory_.cells()) return true;
    look_for_taken();
    return sent_ - taken_.there < memory_.cells();
  }
  void look_for_taken() { taken_.there = memory_.receipts().cells_taken.load(std::memory_order_acquire); }
  ByteRing* ring_for(std::size_t bytes);
  bool copy_to_bytes(const std::byte* data, CellFields fields);
  void publish(MessageCell& cell, const CellFields& fields) {
    cell.key = fields.key;
    cell.bytes = fields.bytes;
    cell.place = fields.place;
    cell.kind = fields.kind;
    cell.acknowledgement = fields.acknowledgement;
    cell.taken = taken_.here;
    long_.note(sent_);
    short_.note(sent_);
    cell.stamp.store(++sent_, std::memory_order_release);
  }

  MessageMemory memory_;
  TakenCells& taken_;
  WriteStrategy& write_strategy_;
  std::size_t slow_write_from_;
  ByteRing long_;
  ByteRing short_;
  std::uint64_t sent_ = 0;     // cells
  std::uint32_t is_used_ = 0;  // a bit for each acknowledgement
};

// Reads the messages of one other member. One thread at a time may use it.
class MessageReceiver {
 public:
  MessageReceiver(const MessageMemory& memory, TakenCells& taken) : memory_(memory), taken_(taken) {}

  // Returns the oldest message that was not taken; null if none has come.
  const MessageCell* next() const {
    const MessageCell& cell = memory_.cell(taken_.here);
    if (cell.stamp.load(std::memory_order_acquire) != taken_.here + 1) return nullptr;
    taken_.there = std::max(taken_.there, cell.taken);
    return &cell;
  }
  // Copies the data of a cell that next() returned, and takes it. Must not be called for an announcement.
  void take(const MessageCell& cell, std::byte* to);
  // Takes an announcement.
  void take() { memory_.receipts().cells_taken.store(++taken_.here, std::memory_order_release); }
  // Answers an announcement.
  void acknowledge(std::uint32_t acknowledgement, Acknowledgement answer) {
    memory_.receipts().acknowledgements[acknowledgement].store(answer, std::memory_order_release);
  }

 private:
  MessageMemory memory_;
  TakenCells& taken_;
};

}  // namespace lockstep::node
