// SPDX-License-Identifier: Apache-2.0
// Moves blocks between pairs of members.
#include "collectives/node/pairwise_form.hpp"

#include <algorithm>
#include <span>

#include "collectives/node/address_form.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::node {
namespace {

// Limits the bytes that are read in another process at a time, so that the others' blocks go on meanwhile.
constexpr std::size_t most_at_once = std::size_t{1} << 20U;

// Is the smallest block in bytes that is read in the other's process if members share cores. The sender then needs no
// more turns of its core. Measured with 4 members on 2 cores: scatter of 2 MiB took half the time.
constexpr std::size_t crowded_read_from = std::size_t{64} << 10U;

// Is the smallest block in bytes that a gather sends this way to its root. Measured with 2 members on cores of one last
// cache: 256 KiB took 13 us instead of 18, 4 MiB 330 instead of 550 (2026-11-30).
constexpr std::size_t gather_from = std::size_t{128} << 10U;

std::uint32_t inline_end(const std::byte* table, std::size_t place) {
  std::uint32_t end = 0;
  std::memcpy(&end, table + place * sizeof end, sizeof end);
  return end;
}

// Return the number of blocks in a member's table, and the place of a member's block there.
std::size_t table_size(const CallContext& call) {
  return only_root_receives(call.collective()) ? 1 : static_cast<std::size_t>(call.members());
}
std::size_t place_in_table(const CallContext& call, int receiver) {
  return only_root_receives(call.collective()) ? 0 : static_cast<std::size_t>(receiver);
}

// Returns where a sender has its blocks for others, after it has published the step.
StepStorage storage_of(const CallContext& call, int sender, StepNumber step) {
  return static_cast<StepStorage>(call.room->ring().line(sender, step).beside_data);
}

void check_size(const CallContext& call, int from, std::size_t sent, std::size_t expected) {
  if (sent == expected) return;
  throw Error(Code::mismatch,
              text("rank ", from, " sent ", sent, " bytes to rank ", call.me(), ", which receives ", expected),
              "let both sides of a message have the same count and type");
}

}  // namespace

// Equal blocks go this way too if members share cores and can read each other: of all ways, it needs the fewest turns.
// Large blocks of a gather do since the sender gets ahead of the root here.
bool PairwiseForm::fits(const CallContext& call) {
  if (call.room->gpus().any_member_has()) return false;
  switch (call.collective()) {
    case Collective::gather_v:
    case Collective::scatter_v:
    case Collective::all_to_all_v:
      return true;
    case Collective::exscan:
      return call.members() == 2 && call.largest_block_bytes > page_bytes;
    case Collective::gather:
      return !call.room->buffers().is_crowded() && call.largest_block_bytes >= gather_from;
    case Collective::scatter:
    case Collective::all_to_all:
      return call.room->buffers().is_crowded() && call.room->buffers().reader().works() &&
             call.largest_block_bytes >= crowded_read_from;
    default:
      return false;
  }
}

void PairwiseForm::begin(CallContext& call) {
  begin_steps(call, call.room->ring().last() + 1, 0);
  set_steps(1);
  const Collective collective = call.collective();
  is_in_place_ = call.spec().in_place && call.has_block_for_each && cuts_output(collective);
  keeps_input_ = is_in_place_ && !(call.spec().input_blocks == call.spec().output_blocks);
  if (keeps_input_) keep_input();
  const auto n = static_cast<std::size_t>(call.members());
  outgoing_.assign(n, {});
  incoming_.assign(n, {});
  list_moves();
  choose_storage();
  set_up_blocks();
}

// Lists the moves. A program that repeats the call then computes no place or size again.
void PairwiseForm::list_moves() {
  const CallContext& all = call();
  moves_.clear();
  ends_.clear();
  InlineEnd end = 0;
  for (int member = 0; member < all.members(); ++member) {
    if (member != all.me() && sends_to(member)) {
      const ByteRange block = all.input_for(member);
      if (block.bytes > 0) moves_.sent.push_back({member, end, block.offset, block.bytes});
      end += static_cast<InlineEnd>(block.bytes);
    }
    if (!only_root_receives(all.collective()) || member == all.spec().root) ends_.push_back(end);
  }
  for (int i = 1; i < all.members(); ++i) {
    const int member = (all.me() + i) % all.members();
    if (!takes_from(member)) continue;
    const ByteRange block = all.output_from(member);
    moves_.received.push_back({member, 0, block.offset, block.bytes});
  }
  sees_all_ = moves_.received.size() + 1 == static_cast<std::size_t>(all.members());
  const OwnBlock own = reduces(all.collective()) ? OwnBlock{} : all.own_block();
  if (own.bytes > 0)
    moves_.own = {static_cast<std::size_t>(own.from - all.input), static_cast<std::size_t>(own.to - all.output),
                  own.bytes};
}

void PairwiseForm::set_up_blocks() {
  for (const Move& move : moves_.sent)
    outgoing_[static_cast<std::size_t>(move.member)] = {
        .from = call().input + move.offset, .bytes = move.bytes, .is_done = false};
  set_up_incoming(0);
}

void PairwiseForm::set_up_incoming(std::size_t first_move) {
  for (const Move& move : std::span(moves_.received).subspan(first_move))
    incoming_[static_cast<std::size_t>(move.member)] = {
        .to = call().output + move.offset, .bytes = move.bytes, .is_done = false};
}

// Takes the place of the phases while all blocks lie in lines and pages. It stops at the first block that has not come
// yet, or that lies in a slot; advance() goes on there.
bool PairwiseForm::repeat(PollLimits& poll_limits) {
  CallContext& all = call();
  begin_steps(all, all.room->ring().last() + 1, 0);
  if (!all.room->ring().is_free(storage())) {
    set_up_blocks();
    return false;
  }
  fill_inline();
  publish();
  PairwiseForm::after_publishing();
  for (std::size_t i = 0; i < moves_.received.size(); ++i) {
    const Move& move = moves_.received[i];
    const bool has_come =
        poll(poll_limits, [&] { return all.room->ring().has_published_in(move.member, first(), all.call_tag); });
    if (!has_come || storage_of(all, move.member, first()) == StepStorage::slot) {
      set_up_incoming(i);
      return false;
    }
    take_inline(move.member, all.output + move.offset, move.bytes);
  }
  PairwiseForm::end_step();
  return true;
}

bool PairwiseForm::sends_to(int member) const {
  const CallContext& all = call();
  if (all.collective() == Collective::exscan) return all.me() < member;
  return all.sends && (!only_root_receives(all.collective()) || member == all.spec().root);
}

bool PairwiseForm::takes_from(int member) const {
  const CallContext& all = call();
  if (all.collective() == Collective::exscan) return member < all.me();
  return all.receives && (!only_root_sends(all.collective()) || member == all.spec().root);
}

// In place, data could arrive where other data have still to be sent.
void PairwiseForm::keep_input() {
  CallContext& all = call();
  kept_input_.assign(all.input, all.input + all.spec().input_blocks.extent() * all.element());
  all.input = kept_input_.data();
  is_in_place_ = false;
}

// A member that sends nothing publishes an empty line. Each member decides for itself.
void PairwiseForm::choose_storage() {
  const CallContext& all = call();
  std::size_t bytes = table_size(call()) * sizeof(InlineEnd);
  for (const Move& move : moves_.sent) bytes += move.bytes;
  StepStorage storage = StepStorage::slot;
  if (!all.sends || bytes <= Line::room)
    storage = StepStorage::line;
  else if (bytes <= page_bytes)
    storage = StepStorage::page;
  set_storage(storage);
  // These are the members whose calls are compared with this one while it waits.
  InputNeed needs = InputNeed::all;
  if (only_root_receives(all.collective()) && !all.is_root())
    needs = storage == StepStorage::slot ? InputNeed::root : InputNeed::none;
  if (only_root_sends(all.collective()) && !all.is_root()) needs = InputNeed::root;
  if (only_root_sends(all.collective()) && all.is_root() && storage != StepStorage::slot) needs = InputNeed::none;
  set_needs(needs);
}

bool PairwiseForm::fill() {
  if (storage() == StepStorage::slot) {
    call().room->ring().my_next_line().beside_data = static_cast<std::uint64_t>(storage());
    fill_slot();
    return true;
  }
  fill_inline();
  for (const Move& move : moves_.sent) outgoing_[static_cast<std::size_t>(move.member)].is_done = true;
  return true;
}

// Writes the table, and the blocks behind it.
void PairwiseForm::fill_inline() {
  StepRing& ring = call().room->ring();
  Line& line = ring.my_next_line();
  line.beside_data = static_cast<std::uint64_t>(storage());
  if (!call().sends) return;
  std::byte* const table = storage() == StepStorage::line ? line.payload : ring.my_next_page();
  const std::size_t table_bytes = ends_.size() * sizeof(InlineEnd);
  std::memcpy(table, ends_.data(), table_bytes);
  if (call().room->write_strategy().is_off()) return;
  for (const Move& move : moves_.sent)
    std::memcpy(table + table_bytes + move.at, call().input + move.offset, move.bytes);
}

// Writes the table and the first chunk of each block.
void PairwiseForm::fill_slot() {
  const CallContext& all = call();
  const RoomMemory& memory = all.room->memory();
  BlockHeader* const table = memory.table(all.me(), first());
  std::byte* ring = memory.slot(all.me(), first(), 0);
  for (int i = 1; i < all.members(); ++i) {
    const int member = (all.me() + i) % all.members();
    Outgoing& block = outgoing_[static_cast<std::size_t>(member)];
    if (only_root_receives(all.collective()) && member != all.spec().root) continue;
    BlockHeader& header = table[place_in_table(all, member)];
    header = {.bytes = block.bytes};
    if (block.is_done) continue;
    PairCounters& pair = memory.pair(all.me(), member);
    header.address = address_of(block.from, block.bytes);
    block.is_by_address = header.address != 0;
    if (block.is_by_address) {
      memory.header().count_up(pair.written);
      continue;
    }
    block.ring = ring_of(block.bytes, ring);
    header.ring = static_cast<std::uint64_t>(ring - memory.slot(all.me(), first(), 0));
    ring += region_bytes();
    write_chunk(member, block);
  }
}

// Returns the part of a slot's area that each receiver has.
std::size_t PairwiseForm::region_bytes() const {
  const std::size_t receivers = std::max<std::size_t>(table_size(call()), 2) - 1;
  return slot_turns * call().room->memory().slot_bytes() / receivers / cache_line * cache_line;
}

// Returns the ring of a block, which both of its members know. A chunk is a quarter of the block if parts that small
// were measured to be faster, and at most a step shared out among the receivers.
PairwiseForm::Ring PairwiseForm::ring_of(std::size_t bytes, std::byte* begin) const {
  const CallContext& all = call();
  const std::size_t step = std::min(all.tuning.step, all.room->memory().slot_bytes());
  const std::size_t receivers = std::max<std::size_t>(table_size(call()), 2) - 1;
  const std::size_t most = std::max(cache_line, step / receivers / cache_line * cache_line);
  const std::size_t least = std::min(round_up(std::max<std::size_t>(all.tuning.flow_from, 1), cache_line), most);
  Ring ring{.begin = begin, .chunk = std::clamp(round_up(bytes / 4, cache_line), least, most)};
  ring.places = region_bytes() / ring.chunk;
  const std::size_t chunks = (bytes + ring.chunk - 1) / ring.chunk;
  if (bytes >= all.tuning.spread_from) ring.first = first() / slot_ring * chunks % ring.places;
  return ring;
}

// Returns the address at which the receiver can read the block; 0: it cannot, or a ring is faster.
std::uintptr_t PairwiseForm::address_of(const std::byte* block, std::size_t bytes) const {
  const CallContext& all = call();
  BufferFinder& buffers = all.room->buffers();
  if (is_in_place_) return 0;
  if (buffers.is_one_process())
    return bytes >= all.tuning.direct_from ? reinterpret_cast<std::uintptr_t>(block) : std::uintptr_t{0};
  const std::size_t from =
      buffers.is_crowded() ? std::min(crowded_read_from, all.tuning.process_read_from) : all.tuning.process_read_from;
  if (!buffers.reader().works() || bytes < from || !suits_process_reading(all, bytes) ||
      !buffers.can_be_read(all.input, all.plan().input_count * all.element()))
    return 0;
  return reinterpret_cast<std::uintptr_t>(block);
}

void PairwiseForm::write_chunk(int to, Outgoing& block) {
  const CallContext& all = call();
  const std::size_t bytes = std::min(block.ring.chunk, block.bytes - block.written);
  all.room->add_copied_bytes(bytes);
  all.room->write_strategy().write(block.ring.at(block.written), block.from + block.written, bytes,
                                   all.tuning.slow_write_from);
  block.written += bytes;
  block.is_done = block.written == block.bytes;
  all.room->memory().header().count_up(all.room->memory().pair(all.me(), to).written);
}

void PairwiseForm::after_publishing() {
  const OwnMove& own = moves_.own;
  if (own.bytes > 0) call().write_output(call().output + own.to, call().input + own.from, own.bytes);
}

bool PairwiseForm::has_collected(PollLimits& poll_limits) {
  return poll(poll_limits, [&] { return move_chunks(); });
}

void PairwiseForm::end_step() {
  if (sees_all_) call().room->ring().note_reached_by_all(first());
  next_step();
  set_phase(FormPhase::done);
}

bool PairwiseForm::move_chunks() {
  const CallContext& all = call();
  bool are_done = true;
  for (int i = 1; i < all.members(); ++i) {
    const int to = (all.me() + i) % all.members();
    const int from = (all.me() + all.members() - i) % all.members();
    Outgoing& out = outgoing_[static_cast<std::size_t>(to)];
    Incoming& in = incoming_[static_cast<std::size_t>(from)];
    if (!out.is_done) send(to, out);
    if (!in.is_done) receive(from, in);
    are_done = are_done && out.is_done && in.is_done;
  }
  return are_done;
}

// Counters wrap around, so only their differences count. Chunks of an earlier call that were not taken yet lie in
// another slot; counting them here is harmless, because the receiver takes them without this call.
void PairwiseForm::send(int to, Outgoing& block) {
  const PairCounters& pair = call().room->memory().pair(call().me(), to);
  const std::uint32_t under_way =
      pair.written.load(std::memory_order_relaxed) - pair.taken.load(std::memory_order_acquire);
  if (block.is_by_address) {
    block.is_done = under_way == 0;
  } else if (under_way < block.ring.places) {
    write_chunk(to, block);
    note_moved();
  }
}

void PairwiseForm::receive(int from, Incoming& block) {
  const CallContext& all = call();
  if (!block.is_seen) {
    if (!all.room->ring().has_published_in(from, first(), all.call_tag)) return;
    read_table(from, block);
    note_moved();
  }
  if (block.is_done) return;
  if (block.address != 0)
    take_by_address(from, block);
  else
    take_chunk(from, block);
}

// Takes my block from behind a sender's table.
void PairwiseForm::take_inline(int from, std::byte* to, std::size_t expected) const {
  const CallContext& all = call();
  const StepRing& ring = all.room->ring();
  const std::byte* const table =
      storage_of(all, from, first()) == StepStorage::line ? ring.line(from, first()).payload : ring.page(from, first());
  const std::size_t place = place_in_table(all, all.me());
  const InlineEnd begin = place == 0 ? 0 : inline_end(table, place - 1);
  const std::size_t bytes = inline_end(table, place) - begin;
  check_size(all, from, bytes, expected);
  if (bytes > 0 && !all.room->write_strategy().is_off())
    std::memcpy(to, table + table_size(all) * sizeof(InlineEnd) + begin, bytes);
}

// Checks the size of the sender's block, and takes it if it lies behind the table.
void PairwiseForm::read_table(int from, Incoming& block) {
  const CallContext& all = call();
  if (storage_of(all, from, first()) != StepStorage::slot) {
    take_inline(from, block.to, block.bytes);
    block.is_seen = block.is_done = true;
    return;
  }
  const BlockHeader& header = all.room->memory().table(from, first())[place_in_table(all, all.me())];
  check_size(all, from, header.bytes, block.bytes);
  block.is_seen = true;
  block.is_done = block.bytes == 0;
  if (block.is_done) return;
  block.address = header.address;
  block.ring = ring_of(block.bytes, all.room->memory().slot(from, first(), 0) + header.ring);
}

// In place, a block may be overwritten only as far as it was sent.
bool PairwiseForm::may_write(int from, const Incoming& block, std::size_t bytes) const {
  const Outgoing& own = outgoing_[static_cast<std::size_t>(from)];
  return !is_in_place_ || own.is_done || block.taken + bytes <= own.written;
}

void PairwiseForm::take_chunk(int from, Incoming& block) {
  const CallContext& all = call();
  const RoomMemory& memory = all.room->memory();
  PairCounters& pair = memory.pair(from, all.me());
  const std::size_t bytes = std::min(block.ring.chunk, block.bytes - block.taken);
  const std::uint32_t taken = pair.taken.load(std::memory_order_relaxed);
  if (pair.written.load(std::memory_order_acquire) == taken || !may_write(from, block, bytes)) return;
  all.write_output(block.to + block.taken, block.ring.at(block.taken), bytes);
  block.taken += bytes;
  block.is_done = block.taken == block.bytes;
  memory.header().count_up(pair.taken);
  note_moved();
}

// Leaves the block alone if a member has given up, because the sender's memory may be gone. This member hears of it.
void PairwiseForm::take_by_address(int from, Incoming& block) {
  const CallContext& all = call();
  const std::size_t bytes = std::min(most_at_once, block.bytes - block.taken);
  if (!may_write(from, block, bytes)) return;
  const PeerAccess access(all.room->access());
  if (!access.is_open()) return;
  const std::uintptr_t address = block.address + block.taken;
  if (all.room->buffers().is_one_process()) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of this process, told as a number
    all.write_output(block.to + block.taken, reinterpret_cast<const std::byte*>(address), bytes);
  } else {
    all.room->add_copied_bytes(bytes);
    all.room->buffers().reader().read(from, block.to + block.taken, address, bytes);
  }
  block.taken += bytes;
  block.is_done = block.taken == block.bytes;
  const RoomMemory& memory = all.room->memory();
  if (block.is_done) memory.header().count_up(memory.pair(from, all.me()).taken);
  note_moved();
}

IndexSet PairwiseForm::missing() const {
  if (phase() != FormPhase::collecting) return InNodeForm::missing();
  IndexSet all;
  for (int member = 0; member < call().members(); ++member) {
    const auto m = static_cast<std::size_t>(member);
    if (!outgoing_[m].is_done || !incoming_[m].is_done) all.insert(member);
  }
  return all;
}

}  // namespace lockstep::node
