// SPDX-License-Identifier: Apache-2.0
// Copies messages into the rings and out of them.
#include "collectives/node/message_ring.hpp"

#include <algorithm>
#include <bit>

#include "collectives/kernels/copy.hpp"

namespace lockstep::node {

// Chooses the ring for some bytes of data, and returns null if they must wait. The short ring is taken only if there is
// known to be space, as for members that send in turns.
ByteRing* MessageSender::ring_for(std::size_t bytes) {
  if (2 * bytes <= short_.bytes() && short_.has_space(bytes, taken_.there)) return &short_;
  if (!long_.has_space(bytes, taken_.there)) look_for_taken();
  return long_.has_space(bytes, taken_.there) ? &long_ : nullptr;
}

bool MessageSender::copy_to_bytes(const std::byte* data, CellFields fields) {
  if (!has_cell()) return false;
  ByteRing* const ring = ring_for(fields.bytes);
  if (ring == nullptr) return false;
  const std::size_t slow = ring->is_fresh() && slow_write_from_ != 0 ? never : slow_write_from_;
  fields.place = ring->fill(fields.bytes);
  write_strategy_.write(memory_.at(fields.place), data, fields.bytes, slow);
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

// Both sides copy at the same time, each another part.
std::size_t MessageSender::copy_fragment(int acknowledgement, const std::byte* data, std::size_t bytes) {
  const std::size_t part = std::min(bytes, memory_.part_bytes());
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
