// SPDX-License-Identifier: Apache-2.0
// Matches messages of a node, and copies or reads their data.
#include "collectives/engine/node_messages.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "collectives/engine/round_rules.hpp"
#include "collectives/kernels/copy.hpp"

namespace lockstep {
namespace {

// Says from how many bytes on the receiver had better read a message where it lies. Threads of a process copy once
// either way, and a sender of less goes on at once; that number is a guess. Processes copy twice through the ring, and
// once by the system, which works longer for each page. Measured on a Zen 4 (2026-11-30): two cores of one last cache
// exchange 128 KiB in 7 us through the ring, and in 11.6 by the system; 2 MiB in 95 and 164. Cores of two caches
// need 7.4 and 7.9 us for 64 KiB, and 15 and 12.9 for 128. If ranks share cores, a message that is read or comes in
// parts takes more turns of both: 4 ranks on 2 cores exchanged 64 KiB in 9 us as a whole through the ring and in 19 by
// the system, 256 KiB in 30 and 51. A member reads its own messages in its own memory, which costs an operation for
// each.
ReadLimits read_limits(node::Room& room, int to) {
  constexpr std::size_t never = std::numeric_limits<std::size_t>::max();
  constexpr ReadLimits threads{8U << 10U, 8U << 10U};
  constexpr ReadLimits itself{32U << 10U, 32U << 10U};
  constexpr std::size_t short_ring_from = 32U << 10U;
  constexpr std::size_t long_ring = 1U << 20U;  // a shorter one stays in a second cache
  constexpr ReadLimits processes{8U << 20U, 128U << 10U};
  if (room.buffers().is_one_process()) return threads;
  if (!room.buffers().reader().works()) return {never, never};
  if (to == room.index()) return itself;
  const node::MessageMemory memory(room.memory(), room.index(), to);
  if (room.buffers().is_crowded()) {
    const std::size_t from = std::max(short_ring_from, memory.most_at_once());
    return {from, from};
  }
  return memory.ring_bytes() >= long_ring ? processes : ReadLimits{short_ring_from, short_ring_from};
}

// Is the size in bytes of the largest memory of early messages that is kept for the next ones; a guess.
constexpr std::size_t most_spare = std::size_t{64} << 10U;

// A message as a whole needs no answer. But a receiver that sends nothing copies the first part of a message while its
// sender copies the next one. Two near cores exchanged 128 KiB in 6.9 us as a whole and in 7.9 in parts.
std::size_t most_eager(node::Room& room, const node::MessageMemory& memory) {
  return room.buffers().is_crowded() ? memory.most_at_once() : memory.part_bytes();
}

}  // namespace

NodeSends::NodeSends(node::Room& room, node::TakenCells& taken, int to)
    : room_(room),
      slow_write_from_(to == room.index() ? node::never : room.tuning().slow_write_from),
      sender_(node::MessageMemory(room.memory(), room.index(), to), taken, write_strategy_, slow_write_from_),
      read_limits_(read_limits(room, to)),
      most_eager_(most_eager(room, node::MessageMemory(room.memory(), room.index(), to))),
      most_exchanged_(node::MessageMemory(room.memory(), room.index(), to).most_at_once()) {}

void NodeSends::send(std::uint64_t key, const std::byte* data, std::size_t bytes, RoundMessages& round) {
  if (try_copy(key, data, bytes, false)) return;
  ++round.sends_left;
  UnfinishedSend message{key, data, bytes, &round};
  if (!waiting_.empty() || !begin(message)) waiting_.push_back(message);
}

// Puts the message or its announcement into the ring. Returns false if there is no space.
bool NodeSends::begin(UnfinishedSend& message) {
  if (message.bytes <= most_eager_ && !is_better_read(message.bytes)) {
    if (!sender_.copy(message.key, message.data, message.bytes)) return false;
    --message.round->sends_left;
    return true;
  }
  const bool is_better = is_better_read(message.bytes);
  const bool is_readable = is_better && room_.buffers().may_be_read(message.data, message.bytes);
  message.acknowledgement = sender_.announce(message.key, message.data, message.bytes, is_readable);
  if (message.acknowledgement < 0) return false;
  if (is_better && message.bytes < read_limits_.near_cores) write_strategy_.count_bypass();
  announced_.push_back(message);
  return true;
}

bool NodeSends::advance() {
  bool moved = false;
  for (UnfinishedSend& message : announced_) moved |= advance(message);
  if (moved) std::erase_if(announced_, [](const UnfinishedSend& each) { return each.acknowledgement < 0; });
  std::size_t begun = 0;
  while (begun < waiting_.size() && begin(waiting_[begun])) ++begun;
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(begun));
  return moved || begun > 0;
}

// Sends fragments if the receiver asks for them. A message that is over has no acknowledgement any more.
bool NodeSends::advance(UnfinishedSend& message) {
  const node::Acknowledgement answer = sender_.answer(message.acknowledgement);
  if (answer == node::Acknowledgement::none) return false;
  bool moved = false;
  while (answer == node::Acknowledgement::send && message.sent < message.bytes) {
    const std::size_t part =
        sender_.copy_fragment(message.acknowledgement, message.data + message.sent, message.bytes - message.sent);
    if (part == 0) return moved;
    message.sent += part;
    moved = true;
  }
  if (answer == node::Acknowledgement::send && !moved) return false;  // waits until the receiver has all
  if (answer == node::Acknowledgement::send) return true;
  sender_.end(message.acknowledgement);
  message.acknowledgement = -1;
  --message.round->sends_left;
  return true;
}

void NodeSends::abandon() {
  waiting_.clear();
  announced_.clear();
}

NodeReceives::NodeReceives(node::Room& room, node::TakenCells& taken, int from, int from_rank, int own_rank)
    : room_(room),
      from_(from),
      from_rank_(from_rank),
      own_rank_(own_rank),
      receiver_(node::MessageMemory(room.memory(), from, room.index()), taken) {}

void NodeReceives::check_length(std::uint64_t sent, std::size_t wanted) const {
  if (sent == wanted) return;
  throw round_rules::mismatch(round_rules::length_mismatch(from_rank_, sent, own_rank_, wanted));
}

void NodeReceives::receive(std::uint64_t key, std::byte* data, std::size_t bytes, RoundMessages& round) {
  ++round.receives_left;
  const WantedMessage wanted{key, data, bytes, &round};
  const auto early = std::ranges::find(early_, key, &EarlyMessage::key);
  if (early == early_.end()) {
    wanted_.push_back(wanted);
    return;
  }
  check_length(early->bytes, bytes);
  EarlyMessage message = std::move(*early);
  early_.erase(early);
  if (message.kind == node::MessageKind::announced) return begin(wanted, message.address, message.acknowledgement);
  copy_bytes(data, message.data.data(), bytes);
  if (message.data.capacity() <= most_spare) spare_.push_back(std::move(message.data));
  --round.receives_left;
}

bool NodeReceives::advance() {
  bool moved = false;
  while (const node::MessageCell* const cell = receiver_.next()) {
    take(*cell);
    moved = true;
    if (is_idle()) break;
  }
  for (IncomingMessage& message : incoming_) moved |= message.address != 0 && read(message);
  if (moved) std::erase_if(incoming_, [](const IncomingMessage& each) { return each.received == each.wanted.bytes; });
  return moved;
}

// Takes a message for its receive, or keeps it. The first receive that waits is usually the right one.
void NodeReceives::take(const node::MessageCell& cell) {
  if (cell.kind == node::MessageKind::fragment) return take_fragment(cell);
  const auto wanted = std::ranges::find(wanted_, cell.key, &WantedMessage::key);
  const bool is_announced = cell.kind == node::MessageKind::announced;
  if (wanted == wanted_.end()) return keep(cell);
  check_length(cell.bytes, wanted->bytes);
  const WantedMessage found = *wanted;
  wanted_.erase(wanted);
  if (is_announced) {
    const std::uint64_t address = cell.place;
    const std::uint32_t acknowledgement = cell.acknowledgement;
    receiver_.take();
    return begin(found, address, acknowledgement);
  }
  receiver_.take(cell, found.data);
  --found.round->receives_left;
}

// Keeps a message until its receive: a copy of its data, or its announcement.
void NodeReceives::keep(const node::MessageCell& cell) {
  EarlyMessage& early =
      early_.emplace_back(EarlyMessage{cell.key, cell.bytes, cell.kind, cell.place, cell.acknowledgement, {}});
  if (cell.kind == node::MessageKind::announced) return receiver_.take();
  if (!spare_.empty()) {
    early.data = std::move(spare_.back());
    spare_.pop_back();
  }
  early.data.resize(cell.bytes);
  receiver_.take(cell, early.data.data());
}

void NodeReceives::take_fragment(const node::MessageCell& cell) {
  const auto message = std::ranges::find(incoming_, cell.acknowledgement, &IncomingMessage::acknowledgement);
  if (message == incoming_.end()) throw Error(Code::internal, "a part of a message that nobody receives");
  const std::size_t bytes = cell.bytes;
  receiver_.take(cell, message->wanted.data + message->received);
  message->received += bytes;
  if (message->received < message->wanted.bytes) return;
  receiver_.acknowledge(message->acknowledgement, node::Acknowledgement::done);
  --message->wanted.round->receives_left;
  incoming_.erase(message);
}

void NodeReceives::begin(const WantedMessage& wanted, std::uint64_t address, std::uint32_t acknowledgement) {
  IncomingMessage message{wanted, address, acknowledgement};
  if (address == 0) receiver_.acknowledge(acknowledgement, node::Acknowledgement::send);
  if (address == 0 || !read(message)) incoming_.push_back(message);
}

// Reads an announced message where it lies. Returns false while a member has given up, until this one hears of it.
bool NodeReceives::read(IncomingMessage& message) {
  constexpr std::size_t at_once = 1U << 20U;  // bytes between two looks if a member has given up, a guess
  const WantedMessage& wanted = message.wanted;
  const node::PeerAccess access(room_.access());
  if (!access.is_open()) return false;
  while (message.received < wanted.bytes && !room_.access().was_given_up()) {
    const std::size_t bytes = std::min(at_once, wanted.bytes - message.received);
    const std::uint64_t from = message.address + message.received;
    std::byte* const to = wanted.data + message.received;
    if (room_.buffers().is_one_process() || from_ == room_.index())
      // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of this process, told as a number
      copy_bytes(to, reinterpret_cast<const std::byte*>(from), bytes);
    else
      room_.buffers().reader().read(from_, to, from, bytes);
    message.received += bytes;
  }
  if (message.received < wanted.bytes) return false;
  receiver_.acknowledge(message.acknowledgement, node::Acknowledgement::done);
  --wanted.round->receives_left;
  return true;
}

void NodeReceives::abandon() {
  wanted_.clear();
  early_.clear();
  incoming_.clear();
}

}  // namespace lockstep
