// SPDX-License-Identifier: Apache-2.0
// Describes one member's work in a collective as a value: rounds over symbolic slices. In a round all messages happen
// at once, then copies and reductions in their order. A schedule knows no pointers, element type or transport, so it
// can be printed, compared, priced and proven. It is the heart of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/spec.hpp"
#include "topology/group.hpp"

namespace lockstep {

// Names the memory of a slice: the user's input, the user's output, or memory that lives as long as the operation.
enum class Space : std::uint8_t { input, output, scratch };

// Is a range of elements of one space; it never counts bytes.
struct Slice {
  Space space = Space::output;
  std::size_t offset = 0;
  std::size_t count = 0;
  bool operator==(const Slice&) const = default;
};

// Return a slice of one space.
inline Slice input(std::size_t offset, std::size_t count) { return {Space::input, offset, count}; }
inline Slice output(std::size_t offset, std::size_t count) { return {Space::output, offset, count}; }
inline Slice scratch(std::size_t offset, std::size_t count) { return {Space::scratch, offset, count}; }

// Returns i modulo size, in [0, size), also for a negative i.
inline int wrap(long long i, int size) {
  const auto rest = static_cast<int>(i % size);
  return rest < 0 ? rest + size : rest;
}

// Tells how a buffer is cut into numbered blocks. Regular cuts take no memory, whatever the number of blocks; listed
// ones share a table between copies. All counts are elements.
class Blocks {
 public:
  Blocks() = default;
  // Returns blocks that differ by at most one in size, the larger ones first.
  static Blocks split(std::size_t total, int parts);
  // Returns `parts` blocks of `each` elements, side by side.
  static Blocks even(std::size_t each, int parts);
  // Returns the same blocks with `stride` elements from the beginning of one to the next.
  static Blocks apart(std::size_t each, std::size_t stride, int parts);
  // Returns blocks of `each` elements; the last may be shorter. 0: one block of all. There are at most 2^20 blocks, so
  // they may be larger.
  static Blocks pieces(std::size_t total, std::size_t each);
  // Returns blocks of the given sizes, side by side.
  static Blocks packed(std::span<const std::size_t> counts);
  // Returns blocks of the given sizes at the given offsets.
  static Blocks placed(std::span<const std::size_t> offsets, std::span<const std::size_t> counts);

  // True if each block has a size of its own, which other members may not know.
  bool listed() const { return table_ != nullptr; }
  int parts() const { return parts_; }
  std::size_t offset(int block) const {
    if (table_) return (*table_)[static_cast<std::size_t>(block)].offset;
    const auto b = static_cast<std::size_t>(block);
    return b * stride_ + (b < larger_ ? b : larger_);
  }
  std::size_t count(int block) const {
    if (table_) return (*table_)[static_cast<std::size_t>(block)].count;
    return each_ + (static_cast<std::size_t>(block) < larger_ ? 1 : 0) - (block + 1 == parts_ ? missing_ : 0);
  }
  std::size_t end(int block) const { return offset(block) + count(block); }
  // Return the number of elements in all blocks, the furthest end of a block, and the largest and smallest sizes.
  std::size_t total() const;
  std::size_t extent() const;
  std::size_t largest() const;
  std::size_t smallest() const;
  Slice slice(Space space, int block) const { return {space, offset(block), count(block)}; }

  bool operator==(const Blocks& other) const;

 private:
  struct BlockEntry {
    std::size_t offset;
    std::size_t count;
    bool operator==(const BlockEntry&) const = default;
  };
  int parts_ = 1;
  std::size_t each_ = 0;
  std::size_t stride_ = 0;
  std::size_t larger_ = 0;   // this many blocks have one element more
  std::size_t missing_ = 0;  // the last of several blocks has this many elements less
  std::shared_ptr<const std::vector<BlockEntry>> table_;
};

// Is a slice that moves from lap to lap of a repeated round: block `first`, then `first + step`, and so on, around the
// blocks. A plain slice converts to one that stays.
class MovingSlice {
 public:
  MovingSlice(const Slice& slice);  // NOLINT(google-explicit-constructor): a slice is one that stays
  MovingSlice(Space space, Blocks blocks, int first, int step);
  // Returns a slice in scratch with as many elements as the block of the lap. It moves around `slots` slots, each as
  // large as the largest block, and begins in slot `slot`.
  static MovingSlice in_slots(Blocks blocks, int first, int step, int slot, int slots);

  // Returns the slice in a lap, counted from 0.
  Slice at(int lap) const {
    const int block = step_ == 0 ? first_ : wrap(first_ + static_cast<long long>(step_) * lap, blocks_.parts());
    const std::size_t offset =
        slots_ == 0 ? blocks_.offset(block) : static_cast<std::size_t>((slot_ + lap) % slots_) * slot_size_;
    return {space_, base_ + offset, blocks_.count(block)};
  }
  Space space() const { return space_; }
  // Puts the slice into another space, and everything `offset` elements further.
  void move_to(Space space, std::size_t offset) {
    space_ = space;
    base_ += offset;
  }
  bool operator==(const MovingSlice&) const = default;

 private:
  Space space_;
  std::size_t base_ = 0;
  Blocks blocks_;
  int first_ = 0;
  int step_ = 0;
  int slot_ = 0;
  int slots_ = 0;  // 0: it lies at its blocks
  std::size_t slot_size_ = 0;
};

// Is a message to or from a peer. In a repeated round the peer may move too, by `peer_step` around `around` members.
// Messages between two members arrive in the order in which they are listed. An empty one is sent only in collectives
// in which members have counts of their own.
struct Message {
  int peer;
  MovingSlice slice;
  int peer_step = 0;
  int around = 1;
  bool narrow = false;  // in the plan's wire format
  int peer_at(int lap) const {
    return peer_step == 0 ? peer : wrap(peer + static_cast<long long>(peer_step) * lap, around);
  }
  bool operator==(const Message&) const = default;
};

// Names the local work: target = left, target = left op right, or target rounded to the wire format.
enum class LocalStepKind : std::uint8_t { copy, reduce, round };

// Is one copy, reduction or rounding. The target is exactly one of the operands, or apart from both. Rounding changes
// the target as messages in the plan's wire format would.
struct LocalStep {
  LocalStepKind kind;
  MovingSlice target;
  MovingSlice left;
  MovingSlice right;  // of a copy, the same as left; of rounding, all three are the same
  bool operator==(const LocalStep&) const = default;
};

// Is a collective among the members of a node, in memory that they share: barrier, broadcast, reduce, all_reduce,
// reduce_scatter_v, all_gather_v, gather_v, scatter_v, scan or exscan. All members know all blocks.
struct IntraNodeStep {
  Collective collective;
  std::vector<int> members;  // indices in the group, in the node's order
  int root = 0;              // an index into `members`
  Slice from = {};           // of this member; empty if it gives nothing
  Slice to = {};
  Blocks blocks = {};  // of the v-forms: cut the input or the output
  std::size_t count() const { return from.count > to.count ? from.count : to.count; }
  bool operator==(const IntraNodeStep&) const = default;
};

// Is a round that is done `times` times while its slices move. A round with `node_steps` is done once and has nothing
// else; its steps come one after another.
struct Round {
  int times = 1;
  std::vector<Message> sends;
  std::vector<Message> receives;
  std::vector<LocalStep> locals;
  std::vector<IntraNodeStep> node_steps = {};
  bool operator==(const Round&) const = default;
};

// Lists the rounds of one member.
struct Schedule {
  std::vector<Round> rounds;
  std::size_t scratch = 0;  // elements of scratch that it needs
  bool operator==(const Schedule&) const = default;

  // Return the number of rounds, with repetitions written out, and the memory that the schedule takes.
  std::size_t laps() const;
  std::size_t size_bytes() const;
};

// Builds a schedule round by round: `ring.round().send(next, slice).receive(last, other).reduce(other, mine, other);`
// round() begins a round, and the functions after it add to that one.
class ScheduleBuilder {
 public:
  ScheduleBuilder& round(int times = 1);
  ScheduleBuilder& send(int peer, const MovingSlice& from);
  ScheduleBuilder& receive(int peer, const MovingSlice& to);
  // Send and receive with a peer that moves by `peer_step` each lap, around `around` members.
  ScheduleBuilder& send(int peer, int peer_step, int around, const MovingSlice& from);
  ScheduleBuilder& receive(int peer, int peer_step, int around, const MovingSlice& to);
  ScheduleBuilder& copy(const MovingSlice& target, const MovingSlice& from);
  ScheduleBuilder& reduce(const MovingSlice& target, const MovingSlice& left, const MovingSlice& right);
  // Rounds `target` off to the wire format.
  ScheduleBuilder& round_off(const MovingSlice& target);
  // Adds a step in the node's memory.
  ScheduleBuilder& node_step(IntraNodeStep node_step);
  // Keeps empty messages. If members do not know each other's counts, leaving them out would hide a difference.
  ScheduleBuilder& keep_empty_messages();
  // Returns the schedule without rounds in which nothing happens. Its scratch is as large as the rounds use.
  Schedule done();
  // Returns the schedule with everything that was added, including empty messages.
  Schedule as_it_is();

 private:
  Round& last() { return schedule_.rounds.back(); }
  Schedule schedule_;
  bool keeps_empty_ = false;
};

// Returns the first schedule followed by the second; they share their scratch.
Schedule then(Schedule first, Schedule second);
// Marks the messages to and from other nodes than `node` as narrow.
void narrow_between_nodes(Schedule& schedule, const std::vector<int>& node_of, int node);
// Translates a schedule for the indices of a group to its ranks: peer i becomes group.rank(i).
Schedule on(const Group& group, Schedule schedule);
// Moves all slices in input and output by the offset of `slice`.
Schedule within(const Slice& slice, Schedule schedule);
// Moves reads and writes of space `from` to space `to`, `offset` elements further. Scratch grows if needed.
Schedule moved(Schedule schedule, Space from, Space to, std::size_t offset);
// Makes a schedule fit for a call in place: the input is first copied to scratch and read there.
Schedule staged(Schedule schedule, std::size_t input_count);

// Return text for people, one line a round: "3x ->1 out[0,4) <-2 tmp[0,4) out[0,4) = out[0,4) op tmp[0,4)".
std::string to_text(const Slice& slice);
std::string to_text(const Schedule& schedule);

}  // namespace lockstep
