// SPDX-License-Identifier: Apache-2.0
// The forms of a work for much data: halves, and direct.
#include "collectives/node/work.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/kernels/copy.hpp"

namespace lockstep::node {
namespace {

constexpr std::size_t cache_line = 64;
constexpr std::size_t block_bytes = 8192;  // stays in the first cache while it is written to several places

constexpr std::size_t up(std::size_t number, std::size_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

}  // namespace

void Work::begin_halves() {
  form_ = Form::halves;
  needs_ = Needs::all;
  // A share of the result, rounded up, lies behind the segment.
  const std::size_t room = (room_->slot_bytes() - element() - 2 * cache_line) * 2 / 3;
  piece_ = std::max<std::size_t>(1, std::min(room, tuning_.segment) / element()) * element();
  region_ = up(piece_, cache_line);
  parts_ = parts_of(common().bytes);
  steps_ = parts_ + 1;
}

// Of a segment: what a member combines. Relative to the segment.
Work::Range Work::share(std::size_t part, int member) const {
  const std::size_t bytes = of_part(common(), part).bytes;
  const auto n = static_cast<std::size_t>(members());
  const std::size_t unit = element() * ((cache_line + element() - 1) / element());
  const std::size_t each = up((bytes + n - 1) / n, unit);
  const std::size_t begin = std::min(bytes, static_cast<std::size_t>(member) * each);
  return {begin, std::min(each, bytes - begin)};
}

void Work::give_halves() {
  if (step_ >= 1) combine_share(step_ - 1);
  if (step_ == parts_) return;
  const Range part = of_part(common(), step_);
  const Range mine = share(step_, me());
  std::byte* const to = room_->my_next_slot();
  const std::byte* const from = input_ + part.offset;
  if (mine.offset > 0) copy_bytes(to, from, mine.offset);
  if (mine.end() < part.bytes) copy_bytes(to + mine.end(), from + mine.end(), part.bytes - mine.end());
}

void Work::combine_share(std::size_t part) {
  const Range mine = share(part, me());
  const std::size_t before = of_part(common(), part).offset + mine.offset;
  std::byte* const result = room_->my_next_slot() + region_;
  const std::size_t block = std::max<std::size_t>(1, block_bytes / element()) * element();
  for (std::size_t at = 0; at < mine.bytes; at += block) {
    const std::size_t bytes = std::min(block, mine.bytes - at);
    for (int member = 0; member < members(); ++member) {
      sources_[static_cast<std::size_t>(member)] =
          member == me() ? input_ + before + at : room_->slot(member, at_step(part)) + mine.offset + at;
    }
    combiner_.combine(result + at, sources_.data(), members(), bytes / element());
    if (takes_) write(output_ + before + at, result + at, bytes);
  }
}

void Work::take_shares(std::size_t part) {
  if (!takes_) return;
  const std::size_t before = of_part(common(), part).offset;
  for (int i = 1; i < members(); ++i) {
    const int member = (me() + i) % members();
    const Range theirs = share(part, member);
    if (theirs.bytes > 0)
      write(output_ + before + theirs.offset, room_->slot(member, at_step(part + 1)) + region_, theirs.bytes);
  }
}

// Whether to ask all where their buffers are. The same on all members.
bool Work::could_be_direct() const {
  if (members() == 1) return false;
  switch (collective()) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::broadcast:
    case Collective::all_gather:
    case Collective::all_gather_v:
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all:
      return most_bytes() >= tuning_.direct_from;
    default:
      return false;
  }
}

void Work::begin_direct() {
  form_ = Form::undecided;
  needs_ = Needs::all;
  steps_ = 1;
}

// In place, all_to_all would overwrite what others still have to read.
void Work::say_places() {
  Line& line = room_->my_next_line();
  Place places[2];
  const bool in_place = collective() == Collective::all_to_all && spec().in_place;
  if (!in_place && plan().input_count > 0) places[0] = room_->place_of(input_, plan().input_count * element());
  if (plan().output_count > 0) places[1] = room_->place_of(output_, plan().output_count * element());
  std::memcpy(line.payload, places, sizeof places);
}

void Work::decide() {
  const bool from_root = collective() == Collective::broadcast || collective() == Collective::scatter;
  bool all = true;
  for (int member = 0; member < members(); ++member) {
    Place places[2];
    std::memcpy(places, room_->line(member, first_).payload, sizeof places);
    const bool is_read = !from_root || member == spec().root;
    const bool is_written =
        collective() == Collective::all_reduce || (collective() == Collective::reduce && member == spec().root);
    all = all && (!is_read || places[0].memory != 0) && (!is_written || places[1].memory != 0);
  }
  if (all) {
    form_ = Form::direct;
    phase_ = Phase::reaching;
    return;
  }
  ++first_;
  phase_ = Phase::giving;
  if ((collective() == Collective::all_reduce || collective() == Collective::reduce) &&
      common().bytes >= tuning_.halves_from)
    begin_halves();
  else
    begin_single();
}

// False while a member has given up, until this one hears of it.
bool Work::go_direct() {
  if (!room_->begin_reaching()) return false;
  const bool whole = reduces(collective()) ? reduce_direct() : copy_direct();
  room_->end_reaching();
  if (!whole) return false;
  // Now all that lies in others' hands must stay until they say that they have done with it.
  steps_ = 2;
  step_ = 1;
  phase_ = Phase::giving;
  if (collective() == Collective::broadcast || collective() == Collective::scatter)
    needs_ = is_root() ? Needs::all : Needs::nobody;
  if (collective() == Collective::gather && !is_root()) needs_ = Needs::root;
  return true;
}

// All_reduce and reduce: my share of all, to all who want it. Reduce_scatter: my block, for me.
bool Work::reduce_direct() {
  const bool scatters = for_each_;
  Range mine = gives(me());
  if (!scatters) {
    piece_ = std::max<std::size_t>(1, common().bytes);
    mine = share(0, me());
  }
  const auto place = [&](int member, int which) {
    Place places[2];
    std::memcpy(places, room_->line(member, first_).payload, sizeof places);
    return room_->reach(member, places[which]);
  };
  const std::size_t block = std::max<std::size_t>(1, block_bytes / element()) * element();
  const int only_taker = collective() == Collective::reduce ? spec().root : me();
  block_.resize(streams_ ? block + cache_line : 0);
  for (std::size_t at = 0; at < mine.bytes; at += block) {
    if (room_->somebody_gave_up()) return false;
    const std::size_t bytes = std::min(block, mine.bytes - at);
    for (int member = 0; member < members(); ++member)
      sources_[static_cast<std::size_t>(member)] = place(member, 0) + mine.offset + at;
    std::byte* const first = scatters ? output_ + at : place(only_taker, 1) + mine.offset + at;
    std::byte* const to = streams_ ? aligned(block_.data()) : first;
    combiner_.combine(to, sources_.data(), members(), bytes / element());
    if (streams_) stream_bytes(first, to, bytes);
    if (collective() != Collective::all_reduce) continue;
    for (int i = 1; i < members(); ++i) write(place((me() + i) % members(), 1) + mine.offset + at, to, bytes);
  }
  return true;
}

bool Work::copy_direct() {
  if (!takes_) return true;
  const bool from_root = collective() == Collective::broadcast || collective() == Collective::scatter;
  copy_own_block();
  for (int i = 1; i < members(); ++i) {
    const int member = (me() + i) % members();
    if (from_root && member != spec().root) continue;
    Place places[2];
    std::memcpy(places, room_->line(member, first_).payload, sizeof places);
    // In an equal form all blocks are as long, and lie in the same places.
    const std::size_t skip = for_each_ ? static_cast<std::size_t>(me()) * spec().count * element() : 0;
    const Range to = takes(member);
    const std::byte* const from = room_->reach(member, places[0]) + skip;
    constexpr std::size_t at_once = 1U << 20U;
    for (std::size_t at = 0; at < to.bytes; at += at_once) {
      if (room_->somebody_gave_up()) return false;
      write(output_ + to.offset + at, from + at, std::min(at_once, to.bytes - at));
    }
  }
  return true;
}

}  // namespace lockstep::node
