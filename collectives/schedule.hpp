// SPDX-License-Identifier: Apache-2.0
// What one member does in a collective, as a value: rounds over symbolic slices. In a round all messages
// happen at once, then copies and reductions in their order. No pointers, no element type, no transport:
// a schedule can be printed, compared, priced and proven. This is the heart of the library.
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

// The user's input, the user's output, and memory that lives as long as the operation.
enum class Space : std::uint8_t { input, output, scratch };

// Elements of one space; never bytes.
struct Slice {
  Space space = Space::output;
  std::size_t offset = 0;
  std::size_t count = 0;
  bool operator==(const Slice&) const = default;
};

inline Slice input(std::size_t offset, std::size_t count) { return {Space::input, offset, count}; }
inline Slice output(std::size_t offset, std::size_t count) { return {Space::output, offset, count}; }
inline Slice scratch(std::size_t offset, std::size_t count) { return {Space::scratch, offset, count}; }

// i modulo size, for i that may be negative.
inline int wrap(long long i, int size) {
  const auto rest = static_cast<int>(i % size);
  return rest < 0 ? rest + size : rest;
}

// How a buffer is cut into numbered blocks. The regular cuts take no memory however many blocks they have.
class Blocks {
 public:
  Blocks() = default;
  // Blocks whose sizes differ by one at most, the larger ones first.
  static Blocks split(std::size_t total, int parts);
  static Blocks even(std::size_t each, int parts);
  // The same, `stride` from the beginning of one to the next.
  static Blocks apart(std::size_t each, std::size_t stride, int parts);
  // Blocks of `each` elements, of which the last may be shorter; 0: one block of all.
  static Blocks pieces(std::size_t total, std::size_t each);
  // Block after block, with sizes as given.
  static Blocks packed(std::span<const std::size_t> counts);
  static Blocks placed(std::span<const std::size_t> offsets, std::span<const std::size_t> counts);

  // Whether each has a size of its own, which other members may not know.
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
  std::size_t total() const;    // elements in all blocks
  std::size_t extent() const;   // where the furthest block ends
  std::size_t largest() const;  // elements of the largest block
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
  std::size_t larger_ = 0;   // so many blocks have one element more
  std::size_t missing_ = 0;  // so many elements the last of several blocks has less
  std::shared_ptr<const std::vector<BlockEntry>> table_;
};

// A slice that moves from lap to lap of a repeated round: block `first`, then `first + step`, and so on, around
// the blocks. A slice alone is one that stays.
class MovingSlice {
 public:
  MovingSlice(const Slice& slice);  // NOLINT(google-explicit-constructor): a slice is one that stays
  MovingSlice(Space space, Blocks blocks, int first, int step);
  // As many elements as the block of the lap has, but in scratch: in slot `slot`, then the next, around `slots` of
  // them, each as large as the largest block.
  static MovingSlice in_slots(Blocks blocks, int first, int step, int slot, int slots);

  Slice at(int lap) const {
    const int block = step_ == 0 ? first_ : wrap(first_ + static_cast<long long>(step_) * lap, blocks_.parts());
    const std::size_t offset =
        slots_ == 0 ? blocks_.offset(block) : static_cast<std::size_t>((slot_ + lap) % slots_) * slot_size_;
    return {space_, base_ + offset, blocks_.count(block)};
  }
  Space space() const { return space_; }
  void move_to(Space space, std::size_t offset) {  // another space, and everything further by offset
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
  int slots_ = 0;  // none: where the blocks are
  std::size_t slot_size_ = 0;
};

// To or from a peer; in a repeated round the peer may move too, around `around` members. Messages between two
// members arrive in the order in which they are written down. One of no elements is not sent at all.
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

enum class LocalStepKind : std::uint8_t { copy, reduce, round };

// target = left, or target = left op right. The target is exactly one of the two, or apart from both. Or the target as
// messages in the plan's wire format would carry it.
struct LocalStep {
  LocalStepKind kind;
  MovingSlice target;
  MovingSlice left;
  MovingSlice right;  // of a copy: the same as left; of rounding all are the same
  bool operator==(const LocalStep&) const = default;
};

// What the members of a node do among themselves in the memory that they share: one of barrier, broadcast, reduce,
// all_reduce, reduce_scatter_v, all_gather_v, gather_v, scatter_v, scan, exscan. All of them know all blocks.
struct IntraNodeStep {
  Collective collective;
  std::vector<int> members;  // as the node numbers them
  int root = 0;              // which of them
  Slice from = {};           // of this member; none where it gives nothing
  Slice to = {};
  Blocks blocks = {};  // of the v-forms: cut what is read, or what is written
  std::size_t count() const { return from.count > to.count ? from.count : to.count; }
  bool operator==(const IntraNodeStep&) const = default;
};

// A round, done `times` times with its slices moving. Or, once and with nothing else, what a node does: one thing after
// the other.
struct Round {
  int times = 1;
  std::vector<Message> sends;
  std::vector<Message> receives;
  std::vector<LocalStep> locals;
  std::vector<IntraNodeStep> near = {};
  bool operator==(const Round&) const = default;
};

struct Schedule {
  std::vector<Round> rounds;
  std::size_t scratch = 0;  // elements that it needs
  bool operator==(const Schedule&) const = default;

  std::size_t laps() const;  // rounds when written out
  std::size_t size_bytes() const;
};

// Writes rounds down. `ring.round().send(next, slice).receive(last, other).reduce(other, mine, other);`
class ScheduleBuilder {
 public:
  ScheduleBuilder& round(int times = 1);
  ScheduleBuilder& send(int peer, const MovingSlice& from);
  ScheduleBuilder& receive(int peer, const MovingSlice& to);
  // The peer moves around `around` members by peer_step each lap.
  ScheduleBuilder& send(int peer, int peer_step, int around, const MovingSlice& from);
  ScheduleBuilder& receive(int peer, int peer_step, int around, const MovingSlice& to);
  ScheduleBuilder& copy(const MovingSlice& target, const MovingSlice& from);
  ScheduleBuilder& reduce(const MovingSlice& target, const MovingSlice& left, const MovingSlice& right);
  ScheduleBuilder& round_off(const MovingSlice& target);
  ScheduleBuilder& near(IntraNodeStep near);
  // Messages of nothing stay: where members do not know each other's counts, silence would hide that they differ.
  ScheduleBuilder& keep_empty_messages();
  // Rounds in which nothing happens are left out; scratch is as large as what was used of it.
  Schedule done();
  // With everything that was said, messages of nothing included.
  Schedule as_it_is();

 private:
  Round& last() { return schedule_.rounds.back(); }
  Schedule schedule_;
  bool keeps_empty_ = false;
};

// First one, then the other; they share their scratch.
Schedule then(Schedule first, Schedule second);
// Messages to and from members that are on other nodes than `node` are narrow.
void narrow_between_nodes(Schedule& schedule, const std::vector<int>& node_of, int node);
// Written for the indices of a group, done by its members: peer i becomes group.rank(i).
Schedule on(const Group& group, Schedule schedule);
// Everything in input and output further by so many elements.
Schedule within(const Slice& slice, Schedule schedule);
// Reads and writes of one space go to another, further by an offset; scratch grows where it is the other.
Schedule moved(Schedule schedule, Space from, Space to, std::size_t offset);
// For a schedule that must not work in place: the input is first copied to scratch.
Schedule staged(Schedule schedule, std::size_t input_count);

// As people read it, one line a round: "3x  ->1 out[0,4)  <-2 tmp[0,4)  out[0,4) = out[0,4) op tmp[0,4)".
std::string to_text(const Slice& slice);
std::string to_text(const Schedule& schedule);
// 64 bits of everything that it says.
std::uint64_t fingerprint(const Schedule& schedule);

}  // namespace lockstep
