// SPDX-License-Identifier: Apache-2.0
// Builds and transforms schedules and the blocks and slices that they are made of.
#include "collectives/schedule.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace lockstep {

// The first blocks are one element larger if the total does not divide.
Blocks Blocks::split(std::size_t total, int parts) {
  Blocks blocks;
  blocks.parts_ = parts;
  blocks.each_ = blocks.stride_ = total / static_cast<std::size_t>(parts);
  blocks.larger_ = total % static_cast<std::size_t>(parts);
  return blocks;
}

Blocks Blocks::even(std::size_t each, int parts) { return apart(each, each, parts); }

Blocks Blocks::apart(std::size_t each, std::size_t stride, int parts) {
  Blocks blocks;
  blocks.parts_ = parts;
  blocks.each_ = each;
  blocks.stride_ = stride;
  return blocks;
}

// The last piece is shorter. Pieces grow if there would be too many rounds.
Blocks Blocks::pieces(std::size_t total, std::size_t each) {
  if (each == 0 || total <= each) return even(total, 1);
  constexpr std::size_t most = 1U << 20U;  // rounds are counted by an int, and more would be no pipeline
  each = std::max(each, (total + most - 1) / most);
  const std::size_t parts = (total + each - 1) / each;
  Blocks blocks = even(each, static_cast<int>(parts));
  blocks.missing_ = parts * each - total;
  return blocks;
}

Blocks Blocks::packed(std::span<const std::size_t> counts) {
  std::vector<std::size_t> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), std::size_t{0});
  return placed(offsets, counts);
}

Blocks Blocks::placed(std::span<const std::size_t> offsets, std::span<const std::size_t> counts) {
  auto table = std::make_shared<std::vector<BlockEntry>>(counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i) (*table)[i] = {offsets[i], counts[i]};
  Blocks blocks;
  blocks.parts_ = static_cast<int>(counts.size());
  blocks.table_ = std::move(table);
  return blocks;
}

std::size_t Blocks::total() const {
  if (!table_) return static_cast<std::size_t>(parts_) * each_ + larger_ - missing_;
  return std::accumulate(table_->begin(), table_->end(), std::size_t{0},
                         [](std::size_t sum, const BlockEntry& each) { return sum + each.count; });
}

// Counts the gaps between blocks, but none after the last one.
std::size_t Blocks::extent() const {
  if (!table_) return total() + (each_ > 0 ? static_cast<std::size_t>(parts_ - 1) * (stride_ - each_) : 0);
  std::size_t furthest = 0;
  for (const BlockEntry& each : *table_) {
    if (each.count > 0) furthest = std::max(furthest, each.offset + each.count);
  }
  return furthest;
}

std::size_t Blocks::largest() const {
  if (!table_) return each_ + (larger_ > 0 ? 1 : 0);
  std::size_t largest = 0;
  for (const BlockEntry& each : *table_) largest = std::max(largest, each.count);
  return largest;
}

std::size_t Blocks::smallest() const {
  if (!table_) return each_ - missing_;
  std::size_t smallest = std::numeric_limits<std::size_t>::max();
  for (const BlockEntry& each : *table_) smallest = std::min(smallest, each.count);
  return smallest;
}

// Compares tables by value, so that equal counts of two calls share a plan.
bool Blocks::operator==(const Blocks& other) const {
  if (parts_ != other.parts_ || each_ != other.each_ || stride_ != other.stride_) return false;
  if (larger_ != other.larger_ || missing_ != other.missing_) return false;
  if (table_ == other.table_) return true;
  return table_ && other.table_ && *table_ == *other.table_;
}

MovingSlice::MovingSlice(const Slice& slice)
    : space_(slice.space), base_(slice.offset), blocks_(Blocks::even(slice.count, 1)), first_(0), step_(0) {}

MovingSlice::MovingSlice(Space space, Blocks blocks, int first, int step)
    : space_(space), blocks_(std::move(blocks)), first_(wrap(first, blocks_.parts())), step_(step) {}

// Each slot has room for the largest block, since blocks of any size come to it in turn.
MovingSlice MovingSlice::in_slots(Blocks blocks, int first, int step, int slot, int slots) {
  MovingSlice moving_slice(Space::scratch, std::move(blocks), first, step);
  moving_slice.slot_ = slot;
  moving_slice.slots_ = slots;
  moving_slice.slot_size_ = moving_slice.blocks_.largest();
  return moving_slice;
}

std::size_t Schedule::laps() const {
  std::size_t all = 0;
  for (const Round& round : rounds) all += static_cast<std::size_t>(round.times);
  return all;
}

std::size_t Schedule::size_bytes() const {
  std::size_t all = sizeof *this + rounds.capacity() * sizeof(Round);
  for (const Round& round : rounds) {
    all += (round.sends.capacity() + round.receives.capacity()) * sizeof(Message);
    all += round.locals.capacity() * sizeof(LocalStep) + round.node_steps.capacity() * sizeof(IntraNodeStep);
  }
  return all;
}

ScheduleBuilder& ScheduleBuilder::round(int times) {
  schedule_.rounds.push_back({times, {}, {}, {}, {}});
  return *this;
}

ScheduleBuilder& ScheduleBuilder::send(int peer, const MovingSlice& from) { return send(peer, 0, 1, from); }
ScheduleBuilder& ScheduleBuilder::receive(int peer, const MovingSlice& to) { return receive(peer, 0, 1, to); }

ScheduleBuilder& ScheduleBuilder::send(int peer, int peer_step, int around, const MovingSlice& from) {
  last().sends.push_back({peer, from, peer_step, around});
  return *this;
}

ScheduleBuilder& ScheduleBuilder::receive(int peer, int peer_step, int around, const MovingSlice& to) {
  last().receives.push_back({peer, to, peer_step, around});
  return *this;
}

ScheduleBuilder& ScheduleBuilder::copy(const MovingSlice& target, const MovingSlice& from) {
  last().locals.push_back({LocalStepKind::copy, target, from, from});
  return *this;
}

ScheduleBuilder& ScheduleBuilder::reduce(const MovingSlice& target, const MovingSlice& left, const MovingSlice& right) {
  last().locals.push_back({LocalStepKind::reduce, target, left, right});
  return *this;
}

ScheduleBuilder& ScheduleBuilder::round_off(const MovingSlice& target) {
  last().locals.push_back({LocalStepKind::round, target, target, target});
  return *this;
}

ScheduleBuilder& ScheduleBuilder::node_step(IntraNodeStep node_step) {
  last().node_steps.push_back(std::move(node_step));
  return *this;
}

namespace {

// Calls visit(slice) for every moving slice of a round.
template <class SomeRound, class Visit>
void each_slice(SomeRound& round, const Visit& visit) {
  for (auto& message : round.sends) visit(message.slice);
  for (auto& message : round.receives) visit(message.slice);
  for (auto& local : round.locals) {
    visit(local.target);
    visit(local.left);
    visit(local.right);
  }
}

// Calls visit(slice) for the input and output of every step within the node.
template <class Visit>
void each_node_slice(Round& round, const Visit& visit) {
  for (IntraNodeStep& node_step : round.node_steps) {
    visit(node_step.from);
    visit(node_step.to);
  }
}

// True if the slice has no element in any repetition of its round.
bool always_empty(const MovingSlice& moving_slice, int times) {
  for (int lap = 0; lap < times; ++lap) {
    if (moving_slice.at(lap).count > 0) return false;
  }
  return true;
}

// Removes messages and local steps that never have an element. Small calls with many members have many of them.
void drop_empty(Round& round, bool keeps_messages = false) {
  const auto empty = [&](const Message& message) { return always_empty(message.slice, round.times); };
  if (!keeps_messages) {
    std::erase_if(round.sends, empty);
    std::erase_if(round.receives, empty);
  }
  std::erase_if(round.locals, [&](const LocalStep& local) { return always_empty(local.target, round.times); });
}

// Returns the end of the furthest slice of scratch, in elements.
std::size_t scratch_used(const Schedule& schedule) {
  std::size_t used = 0;
  for (const Round& round : schedule.rounds) {
    each_slice(round, [&](const MovingSlice& moving_slice) {
      if (moving_slice.space() != Space::scratch) return;
      for (int lap = 0; lap < round.times; ++lap) {
        const Slice slice = moving_slice.at(lap);
        if (slice.count > 0) used = std::max(used, slice.offset + slice.count);
      }
    });
    for (const IntraNodeStep& node_step : round.node_steps) {
      for (const Slice& slice : {node_step.from, node_step.to}) {
        if (slice.space == Space::scratch) used = std::max(used, slice.offset + slice.count);
      }
    }
  }
  return used;
}

}  // namespace

Schedule ScheduleBuilder::as_it_is() {
  schedule_.scratch = scratch_used(schedule_);
  return std::move(schedule_);
}

ScheduleBuilder& ScheduleBuilder::keep_empty_messages() {
  keeps_empty_ = true;
  return *this;
}

Schedule ScheduleBuilder::done() {
  for (Round& round : schedule_.rounds) drop_empty(round, keeps_empty_);
  std::erase_if(schedule_.rounds, [](const Round& round) {
    return round.times <= 0 ||
           (round.sends.empty() && round.receives.empty() && round.locals.empty() && round.node_steps.empty());
  });
  return as_it_is();
}

// Both may use the same scratch, because the second begins after the first.
Schedule then(Schedule first, Schedule second) {
  first.scratch = std::max(first.scratch, second.scratch);
  first.rounds.insert(first.rounds.end(), std::make_move_iterator(second.rounds.begin()),
                      std::make_move_iterator(second.rounds.end()));
  return first;
}

namespace {

// Writes the laps of a round out, because peers that move by a rule in the group follow none in its ranks.
void write_out(const Round& round, const Group& group, std::vector<Round>& all) {
  for (int lap = 0; lap < round.times; ++lap) {
    Round one;
    for (const Message& message : round.sends)
      one.sends.push_back({group.rank(message.peer_at(lap)), message.slice.at(lap)});
    for (const Message& message : round.receives)
      one.receives.push_back({group.rank(message.peer_at(lap)), message.slice.at(lap)});
    for (const LocalStep& local : round.locals)
      one.locals.push_back({local.kind, local.target.at(lap), local.left.at(lap), local.right.at(lap)});
    drop_empty(one);
    all.push_back(std::move(one));
  }
}

}  // namespace

// Maps the ranks of a smaller group to those of the larger one.
Schedule on(const Group& group, Schedule schedule) {
  Schedule mapped;
  mapped.scratch = schedule.scratch;
  const auto moves = [](const Message& message) { return message.peer_step != 0; };
  for (Round& round : schedule.rounds) {
    if (std::ranges::any_of(round.sends, moves) || std::ranges::any_of(round.receives, moves)) {
      write_out(round, group, mapped.rounds);
      continue;
    }
    for (Message& message : round.sends) message.peer = group.rank(message.peer);
    for (Message& message : round.receives) message.peer = group.rank(message.peer);
    for (IntraNodeStep& node_step : round.node_steps) {
      for (int& member : node_step.members) member = group.rank(member);
    }
    mapped.rounds.push_back(std::move(round));
  }
  return mapped;
}

// Marks the messages that leave the node. Only these may carry 16-bit floats.
void narrow_between_nodes(Schedule& schedule, const std::vector<int>& node_of, int node) {
  const auto mark = [&](std::vector<Message>& messages) {
    for (Message& each : messages) each.narrow = node_of.at(static_cast<std::size_t>(each.peer)) != node;
  };
  for (Round& round : schedule.rounds) {
    mark(round.sends);
    mark(round.receives);
  }
}

// Moves input and output by the begin of the slice; scratch stays.
Schedule within(const Slice& slice, Schedule schedule) {
  for (Round& round : schedule.rounds) {
    each_slice(round, [&](MovingSlice& moving_slice) {
      if (moving_slice.space() != Space::scratch) moving_slice.move_to(moving_slice.space(), slice.offset);
    });
    each_node_slice(round, [&](Slice& node_slice) {
      if (node_slice.space != Space::scratch) node_slice.offset += slice.offset;
    });
  }
  return schedule;
}

// Renames a space, for example to work in scratch instead of in the input.
Schedule moved(Schedule schedule, Space from, Space to, std::size_t offset) {
  for (Round& round : schedule.rounds) {
    each_slice(round, [&](MovingSlice& moving_slice) {
      if (moving_slice.space() == from) moving_slice.move_to(to, offset);
    });
    each_node_slice(round, [&](Slice& node_slice) {
      if (node_slice.space == from) node_slice = {to, node_slice.offset + offset, node_slice.count};
    });
    // A copy onto itself has no effect any more.
    std::erase_if(round.locals, [](const LocalStep& local) {
      return local.kind == LocalStepKind::copy && local.target == local.left;
    });
  }
  schedule.scratch = std::max(schedule.scratch, scratch_used(schedule));
  return schedule;
}

// Copies the whole input to scratch first, for algorithms that do not work in place.
Schedule staged(Schedule schedule, std::size_t input_count) {
  const std::size_t at = schedule.scratch;
  ScheduleBuilder first;
  first.round().copy(scratch(at, input_count), input(0, input_count));
  return then(first.done(), moved(std::move(schedule), Space::input, Space::scratch, at));
}

}  // namespace lockstep
