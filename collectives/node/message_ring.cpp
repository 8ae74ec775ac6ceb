// SPDX-License-Identifier: Apache-2.0
// Copies messages into the rings and out of them.
#include "collectives/node/message_ring.hpp"

#include <algorithm>
#include <bit>

#include "collectives/kernels/copy.hpp"

namespace lockstep::node {

// Returns where data begin in a ring: at its next line, or at its begin if the rest is too short.
std::uint64_t MessageSender::begin_of(const Ring& ring, std::size_t bytes) {
  const std::size_t before_end = ring.bytes - (ring.sent & (ring.bytes - 1));
  return bytes <= before_end ? ring.sent : ring.sent + before_end;
}

// Chooses the ring for some bytes of data, and returns null if they must wait. The short ring is taken only if there is
// known to be space, as for members that send in turns.
MessageSender::Ring* MessageSender::ring_for(std::size_t bytes) {
  if (2 * bytes <= short_.bytes && has_space(short_, begin_of(short_, bytes) + bytes)) return &short_;
  const std::uint64_t end = begin_of(long_, bytes) + bytes;
  if (!has_space(long_, end)) look_for_taken();
  return has_space(long_, end) ? &long_ : nullptr;
}

bool MessageSender::copy_to_bytes(const std::byte* data, CellFields fields) {
  if (!has_cell()) return false;
  Ring* const ring = ring_for(fields.bytes);
  if (ring == nullptr) return false;
  const std::uint64_t begin = begin_of(*ring, fields.bytes);
  fields.place = ring->begin + (begin & (ring->bytes - 1));
  write_strategy_.write(memory_.at(fields.place), data, fields.bytes, slow_write_from_);
  ring->sent = round_up(begin + fields.bytes, cache_line);  // the next data begin at a cache line
  publish(memory_.cell(sent_), fields);
  return true;
}

int MessageSender::announce(std::uint64_t key, const std::byte* data, std::size_t bytes, bool is_readable) {
  const int free = std::countr_one(is_used_);
  if (free >= static_cast<int>(MessageReceipts::most_announced) || !has_cell()) return -1;
  is_used_ |= std::uint32_t{1} << static_cast<unsigned>(free);
  memory_.receipts().acknowledgements[free].store(Acknowledgement::none, std::memory_order_relaxed);
  publish(memory_.cell(sent_), {.key = key,
                                .bytes = bytes,
                                .place = is_readable ? reinterpret_cast<std::uintptr_t>(data) : 0,
                                .kind = MessageKind::announced,
                                .acknowledgement = static_cast<std::uint32_t>(free)});
  return free;
}

// Sends parts that are as large as a message that is copied at once, so that both sides copy at the same time.
std::size_t MessageSender::copy_fragment(int acknowledgement, const std::byte* data, std::size_t bytes) {
  const std::size_t part = std::min(bytes, memory_.most_eager());
  const bool is_copied = copy_to_bytes(data, {.key = 0,
                                              .bytes = part,
                                              .place = 0,
                                              .kind = MessageKind::fragment,
                                              .acknowledgement = static_cast<std::uint32_t>(acknowledgement)});
  return is_copied ? part : 0;
}

void MessageReceiver::take(const MessageCell& cell, std::byte* to) {
  if (cell.kind == MessageKind::in_cell) {
    if (cell.bytes > 0) std::memcpy(to, cell.payload, cell.bytes);
  } else {
    copy_bytes(to, memory_.at(cell.place), cell.bytes);
  }
  take();
}

}  // namespace lockstep::node
