// SPDX-License-Identifier: Apache-2.0
// Copies messages into the rings and out of them.
#include "collectives/node/message_ring.hpp"

#include <algorithm>
#include <bit>

#include "collectives/kernels/copy.hpp"

namespace lockstep::node {

// Leaves the end of the ring unused if the data do not fit before it.
bool MessageSender::copy_to_bytes(const std::byte* data, CellFields fields) {
  const std::size_t ring = memory_.ring_bytes();
  const std::size_t before_end = ring - (bytes_sent_ & (ring - 1));
  const std::uint64_t begin = fields.bytes <= before_end ? bytes_sent_ : bytes_sent_ + before_end;
  const std::uint64_t end = begin + fields.bytes;
  if (end - bytes_taken_ > ring) bytes_taken_ = memory_.receipts().bytes_taken.load(std::memory_order_acquire);
  if (end - bytes_taken_ > ring || !has_cell()) return false;
  copy_bytes(memory_.at(begin), data, fields.bytes);
  bytes_sent_ = round_up(end, cache_line);  // the next data begin at a cache line
  fields.place = end;
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

// Sends parts of a quarter of the ring, so that both sides copy at the same time.
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
    copy_bytes(to, memory_.at(cell.place - cell.bytes), cell.bytes);
    memory_.receipts().bytes_taken.store(cell.place, std::memory_order_release);
  }
  take();
}

}  // namespace lockstep::node
