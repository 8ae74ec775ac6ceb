// SPDX-License-Identifier: Apache-2.0
// Divides the memory in which the members of a node meet. Every member has places for the data of its steps there, in
// rings that only it writes: lines, pages and slots. Nothing here knows which places are free; see StepRing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace lockstep::node {

using StepNumber = std::uint32_t;  // wraps around at 2^32
// True if step a is k or a later one. Steps wrap, so the two must be less than 2^31 apart.
constexpr bool reaches(StepNumber a, StepNumber k) { return static_cast<std::int32_t>(a - k) >= 0; }

// Count the places in each member's rings of slots, and of lines and pages. Members that share a core take turns of it,
// and a ring that is full or empty ends a turn. With 4 members on 2 cores, calls in which only one member sends or
// receives took 0.6 to 0.8 times as long with 128 lines as with 32 (2026-11-30); 256 were no faster.
inline constexpr StepNumber slot_ring = 4;
inline constexpr StepNumber line_ring = 128;
// Counts the slots that a slot's area has room for; a guess: they hold more data than the caches of a core.
inline constexpr std::size_t slot_turns = 4;
inline constexpr std::size_t cache_line = 64;    // bytes
inline constexpr std::size_t page_bytes = 2048;  // bytes; small data for one member, or from one, lie in a page
inline constexpr std::size_t line_size = 128;    // bytes: two cache lines, because processors fetch them in pairs

// Returns the smallest multiple of `multiple` that is at least `number`.
constexpr std::size_t round_up(std::size_t number, std::size_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

// Is one step of one member: its number, its call tag and up to 112 bytes of data.
struct alignas(line_size) Line {
  static constexpr std::size_t room = line_size - 2 * sizeof(std::uint64_t);
  std::atomic<std::uint64_t> stamp;  // the step in the upper half, the call tag in the lower one
  std::uint64_t beside_data;         // a number beside the data, such as a count of steps
  std::byte payload[room];
};
static_assert(sizeof(Line) == line_size && std::atomic<std::uint64_t>::is_always_lock_free);

// Lies in the table beside a slot: the block that the slot's member has for another one.
struct BlockHeader {
  std::uint64_t bytes = 0;    // of the block
  std::uint64_t address = 0;  // in the sender's process, if the receiver reads it there; else 0
  std::uint64_t ring = 0;     // the place of the block's ring in the slot's area, in bytes
};

// Counts the chunks that one member has ever written for another, and those that the other has taken. Each side writes
// its own counter only. Both wrap around.
struct PairCounters {
  alignas(cache_line) std::atomic<std::uint32_t> written;
  alignas(cache_line) std::atomic<std::uint32_t> taken;
};

// Counts the chunks in the ring of a pair. They have the bytes of a slot's area at most; see Layout.
inline constexpr std::uint32_t ring_chunks = 4;

// Belongs to one of the steps in the ring in which one member combines for all.
struct StepArrivals {
  alignas(line_size) std::atomic<std::uint32_t> arrived;
  std::atomic<std::uint64_t> leader;  // the step in the upper half, the member that combines in the lower one
  Line result;
};

// Is the part of the memory that concerns all members.
struct alignas(line_size) RoomHeader {
  std::atomic<std::uint32_t> sleepers;  // the members that sleep
  std::atomic<std::uint32_t> wakes;     // changes when a member wakes them
  std::atomic<std::uint32_t> given_up;  // 1: a member called AccessGate::abandon()

  // Wakes all members that sleep.
  void wake_all() {
    if (sleepers.load(std::memory_order_relaxed) > 0) wake_sleepers();
  }
  // Adds one to a counter that only this member writes. Others that see it also see everything written before.
  void count_up(std::atomic<std::uint32_t>& counter) {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    wake_all();
  }
  // Sleeps until a member wakes all, at most this long. May return early, and late if it was woken at the very same
  // time.
  void sleep(std::int64_t nanoseconds);

 private:
  void wake_sleepers();
};

// Is the part that only one member writes, beside its rings.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): a counter that others poll has a line of its own
struct alignas(line_size) RoomMemberHeader {
  std::atomic<std::uint32_t> busy;             // 1: it reaches into the memory of others
  std::atomic<std::uint32_t> waits_queued_to;  // the last step whose events it has queued waits for
  std::atomic<std::uint32_t> has_left;         // 1: it has left, and waits for nothing any more
  std::atomic<std::uint64_t> trial_votes[2];  // of the last trials with an even and an odd number; see tuning_trial.hpp
  std::atomic<std::uint32_t> finished;        // the last step of its last finished call
  // Holds the first step of its SegmentFlow in the upper half, and the number of segments. Others look at it often.
  alignas(line_size) std::atomic<std::uint64_t> segments_ready;
};

// Holds the division of a room's memory for some number of members. All values are in bytes; those that begin with
// `lines` are offsets.
struct Layout {
  explicit Layout(int members);
  std::size_t slot;    // data in a slot: 16 to 256 KiB, less with more members
  std::size_t area;    // in which the data rotate; a BlockHeader for every member lies behind it
  std::size_t stride;  // from slot to slot
  std::size_t lines;   // the headers lie before them
  std::size_t pages;
  std::size_t slots;
  std::size_t pairs;
  std::size_t messages;  // an offset, too; see MessageLayout
  std::size_t bytes;     // of the whole room
};

// Knows the places in a room's memory, and which member this one is. It is a value; the memory lives as long as a copy.
class RoomMemory {
 public:
  static constexpr std::size_t most_members = 256;  // a guess
  static std::size_t bytes_for(int members) { return Layout(members).bytes; }
  // Returns the size in bytes of the largest element that can be reduced there; 0: there are too many members.
  static std::size_t most_element(int members) {
    return static_cast<std::size_t>(members) > most_members
               ? 0
               : Layout(members).slot / static_cast<std::size_t>(members) / 4;
  }
  // Takes memory of bytes_for(size) bytes, which is the same for all members, begins as zeros and is kept alive by
  // `memory`.
  RoomMemory(std::shared_ptr<std::byte> memory, int index, int size);

  int index() const { return index_; }
  int size() const { return size_; }
  const std::shared_ptr<std::byte>& owner() const { return memory_; }
  std::size_t bytes() const { return layout_.bytes; }
  // Returns the number of data bytes that fit into a slot.
  std::size_t slot_bytes() const { return layout_.slot; }

  // Return the places of a member's step.
  Line& line(int member, StepNumber step) const { return lines_[line_at(member, step)]; }
  std::byte* page(int member, StepNumber step) const { return pages_ + line_at(member, step) * page_bytes; }
  // Returns a member's slot. Steps that have the same span, in bytes, rotate within the slot's area. New data then lie
  // where the others read long ago, and their caches no longer hold that line. With span 0 the place stays.
  std::byte* slot(int member, StepNumber step, std::size_t span) const {
    return slot_at(member, step) + rotation(step, span);
  }
  // Returns the table beside a slot, with a header for each member.
  BlockHeader* table(int member, StepNumber step) const {
    return reinterpret_cast<BlockHeader*>(slot_at(member, step) + layout_.area);
  }
  // Returns the counters of the chunks that a member writes for another one.
  PairCounters& pair(int from, int to) const {
    return reinterpret_cast<PairCounters*>(memory_.get() + layout_.pairs)[from * size_ + to];
  }
  // All members meet in a step in which one combines, so a ring of four is as good as a longer one.
  StepArrivals& arrivals(StepNumber step) const {
    return reinterpret_cast<StepArrivals*>(memory_.get() + sizeof(RoomHeader))[step % slot_ring];
  }
  RoomHeader& header() const { return *reinterpret_cast<RoomHeader*>(memory_.get()); }
  RoomMemberHeader& header_of(int member) const {
    return reinterpret_cast<RoomMemberHeader*>(memory_.get() + sizeof(RoomHeader) +
                                               slot_ring * sizeof(StepArrivals))[member];
  }

 private:
  static std::size_t line_at(int member, StepNumber step) {
    return static_cast<std::size_t>(member) * line_ring + step % line_ring;
  }
  std::byte* slot_at(int member, StepNumber step) const {
    return slots_ + (static_cast<std::size_t>(member) * slot_ring + step % slot_ring) * layout_.stride;
  }
  std::size_t rotation(StepNumber step, std::size_t span) const {
    return span == 0 ? 0 : step / slot_ring % (layout_.area / span) * span;
  }

  std::shared_ptr<std::byte> memory_;
  Layout layout_;
  int index_;
  int size_;
  Line* lines_;
  std::byte* pages_;
  std::byte* slots_;
};

}  // namespace lockstep::node
