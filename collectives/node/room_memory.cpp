// SPDX-License-Identifier: Apache-2.0
// Lays out a room's memory, and sleeps there.
#include "collectives/node/room_memory.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "collectives/node/message_memory.hpp"

namespace lockstep::node {
namespace {

constexpr std::size_t system_page = 4096;

// Waits for a word of memory to change, or wakes those that wait. Several processes may share the word.
long futex(std::atomic<std::uint32_t>& word, int what, std::uint32_t value, const timespec* limit) {
  return ::syscall(SYS_futex, &word, what, value, limit, nullptr, 0);
}

}  // namespace

// Slots lie an odd number of lines apart, so that equal places in them use different places of a cache.
Layout::Layout(int members) {
  constexpr std::size_t most = 256U << 10U;
  constexpr std::size_t least = 16U << 10U;
  constexpr std::size_t in_all = 64U << 20U;
  const auto n = static_cast<std::size_t>(members);
  slot = std::clamp(in_all / (n * slot_ring * slot_turns), least, most) / system_page * system_page;
  area = slot_turns * slot;
  stride = area + round_up(n * sizeof(BlockHeader), 2 * line_size) + line_size;
  lines = sizeof(RoomHeader) + slot_ring * sizeof(StepArrivals) + n * sizeof(RoomMemberHeader);
  pages = round_up(lines + n * line_ring * sizeof(Line), system_page);
  slots = pages + n * line_ring * page_bytes;
  pairs = round_up(slots + n * slot_ring * stride, line_size);
  messages = round_up(pairs + n * n * sizeof(PairCounters), system_page);
  bytes = round_up(messages + MessageLayout(members).bytes, system_page);
}

RoomMemory::RoomMemory(std::shared_ptr<std::byte> memory, int index, int size)
    : memory_(std::move(memory)),
      layout_(size),
      index_(index),
      size_(size),
      lines_(reinterpret_cast<Line*>(memory_.get() + layout_.lines)),
      pages_(memory_.get() + layout_.pages),
      slots_(memory_.get() + layout_.slots) {}

void RoomHeader::wake_sleepers() {
  wakes.fetch_add(1, std::memory_order_relaxed);
  futex(wakes, FUTEX_WAKE, INT_MAX, nullptr);
}

void RoomHeader::sleep(std::int64_t nanoseconds) {
  const std::uint32_t before = wakes.load(std::memory_order_relaxed);
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  const timespec limit{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  futex(wakes, FUTEX_WAIT, before, &limit);
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace lockstep::node
