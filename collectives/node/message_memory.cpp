// SPDX-License-Identifier: Apache-2.0
// Lays out the memory of messages.
#include "collectives/node/message_memory.hpp"

#include <algorithm>
#include <bit>

namespace lockstep::node {

// A ring stays within the cache of a core, and all rings together within 64 MiB for as long as they are 4 KiB or more.
// All numbers are guesses.
MessageLayout::MessageLayout(int members) {
  constexpr std::size_t most = 128U << 10U;
  constexpr std::size_t least = 4U << 10U;
  constexpr std::size_t in_all = 64U << 20U;
  const auto n = static_cast<std::size_t>(members);
  cells = members <= 64 ? 32 : 8;
  ring = std::bit_floor(std::clamp(in_all / (n * n), least, most));
  stride = sizeof(MessageReceipts) + cells * sizeof(MessageCell) + ring;
  bytes = n * n * stride;
}

MessageMemory::MessageMemory(const RoomMemory& room, int from, int to) {
  const MessageLayout layout(room.size());
  const auto pair =
      static_cast<std::size_t>(from) * static_cast<std::size_t>(room.size()) + static_cast<std::size_t>(to);
  std::byte* const begin = room.owner().get() + Layout(room.size()).messages + pair * layout.stride;
  cells_ = layout.cells;
  ring_bytes_ = layout.ring;
  receipts_ = reinterpret_cast<MessageReceipts*>(begin);
  first_cell_ = reinterpret_cast<MessageCell*>(begin + sizeof(MessageReceipts));
  ring_ = begin + sizeof(MessageReceipts) + layout.cells * sizeof(MessageCell);
}

}  // namespace lockstep::node
