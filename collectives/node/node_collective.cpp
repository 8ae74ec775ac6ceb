// SPDX-License-Identifier: Apache-2.0
// Runs the steps of a call in a node, and its single form.
#include "collectives/node/node_collective.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "collectives/kernels/copy.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::node {
namespace {

bool root_gives(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::scatter ||
         collective == Collective::scatter_v;
}

bool root_takes(Collective collective) {
  return collective == Collective::reduce || collective == Collective::gather || collective == Collective::gather_v;
}

}  // namespace

void NodeCollective::begin(Room& room, const Tuning& tuning, const Call& call, const std::byte* input,
                           std::uint32_t call_tag, AddressQueries address_queries) {
  room_ = &room;
  tuning_ = tuning;
  call_ = &call;
  input_ = input;
  output_ = static_cast<std::byte*>(call.output);
  pieces_ = call.pieces.get();
  call_tag_ = call_tag;
  first_ = room.last() + 1;
  step_ = 0;
  seen_ = 0;
  phase_ = NodeCollectivePhase::giving;
  if (reduces(collective())) combiner_.set(call);
  sources_.resize(static_cast<std::size_t>(members()));
  for_each_ = cuts_input(collective());
  hidden_ = has_own_counts(collective());
  gives_ = collective() != Collective::barrier && (!root_gives(collective()) || is_root());
  takes_ = collective() != Collective::barrier && (!root_takes(collective()) || is_root());
  // In place, the lines have already been read.
  streams_ = !spec().in_place &&
             plan().output_count * element() >= (reduces(collective()) ? tuning_.stream_from : tuning_.drain_from);
  could_read_processes_ = could_read_processes();
  queries_addresses_ = could_read_processes_ || could_be_direct(address_queries);
  look_for_gpus();
  if (queries_addresses_) return begin_direct();
  begin_by_host();
}

void NodeCollective::reserve(const Call& call) {
  const auto n = static_cast<std::size_t>(call.plan->size);
  sources_.reserve(n);
  inputs_.reserve(n);
  outputs_.reserve(n);
  remote_inputs_.reserve(n);
  devices_.reserve(n);
  turns_.reserve(n);
  after_.reserve(n);
  if (reduces(call.plan->spec.collective)) combiner_.reserve(call);
}

void NodeCollective::begin_by_slots() {
  if (is_on_gpu()) begin_device_copies();
  const bool shares = collective() == Collective::all_reduce || collective() == Collective::reduce;
  if (shares && common().bytes >= tuning_.halves_from && members() > 1)
    begin_halves();
  else
    begin_single();
}

void NodeCollective::begin_single() {
  form_ = NodeCollectiveForm::single;
  holder_ = StepStorage::slot;
  const auto n = static_cast<std::size_t>(members());
  const std::size_t most = most_bytes();
  const std::size_t least = (for_each_ ? n : 1) * round_up(std::max(element(), cache_line), cache_line);
  const std::size_t room = std::min(room_->slot_bytes(), std::max(tuning_.step, least));
  region_ = for_each_ ? room / n / cache_line * cache_line : room;
  piece_ = reduces(collective()) ? region_ / element() * element() : region_;
  parts_ = parts_of(most);
  const std::size_t in_all = for_each_ ? n * most : most;
  // A user's function may need better alignment than a place beside a number has.
  if (!hidden_ && in_all <= Line::room && call_->user.apply == nullptr) {
    holder_ = StepStorage::line;
    region_ = most;
  }
  const std::size_t padded = round_up(most, cache_line);
  // A member that sends to one member, or from one, may be ahead of it; the ring of pages is longer.
  if (!hidden_ && holder_ == StepStorage::slot && (for_each_ ? n * padded : padded) <= page_bytes &&
      (root_gives(collective()) || root_takes(collective()))) {
    holder_ = StepStorage::page;
    region_ = padded;
  }
  if (holder_ != StepStorage::slot) {
    piece_ = std::max(piece_, most);
    parts_ = 1;
  }
  gathers_ = collective() == Collective::all_reduce && parts_ == 1 && most < tuning_.alone_from && members() > 1 &&
             call_->user.apply == nullptr &&  // all members must see the exception of a user's function
             (holder_ == StepStorage::line || 2 * padded <= room_->slot_bytes());
  if (gathers_ && holder_ == StepStorage::slot) region_ = padded;
  // Data from one member to all go in a few parts, so that one is taken while the next is given.
  constexpr std::size_t few = 4;
  if (root_gives(collective()) && !hidden_ && holder_ == StepStorage::slot) {
    piece_ = std::clamp(round_up(most / few, cache_line), std::min(tuning_.flow_from, region_), region_);
    parts_ = parts_of(most);
  }
  set_span(gathers_ ? 2 * padded
                    : (for_each_ ? n : 1) * std::min(region_, round_up(std::min(piece_, most), cache_line)));
  if (for_each_ && span_ > 0) region_ = round_up(std::min(piece_, most), cache_line);
  steps_ = parts_;
  small_bytes_ = gives_ ? gives(me()).bytes : 0;
  is_small_sum_ = holder_ == StepStorage::line && collective() == Collective::all_reduce && pieces_ == nullptr;
  switch (collective()) {
    case Collective::scan:
    case Collective::exscan:
      needs_ = InputNeed::lower;
      break;
    default:
      needs_ = root_gives(collective())                 ? InputNeed::root
               : root_takes(collective()) && !is_root() ? InputNeed::nobody
                                                        : InputNeed::all;
  }
  // In place, data could arrive where other data have still to be given.
  if (collective() == Collective::all_to_all_v && spec().in_place && !(spec().gives == spec().takes)) keep_input();
  moves_ = !reduces(collective()) && collective() != Collective::barrier;
  if (moves_) copy_own_block();
  if (uploads() && takes_ && reduces(collective()) && !gathers_)
    sums_ = gpu::backend()->pinned(sums_at_once * sum_bytes());
}

bool NodeCollective::needs(int member) const {
  if (member == me()) return false;
  if (needs_ == InputNeed::all) return true;
  const bool all = (hidden_ && form_ == NodeCollectiveForm::single && step_ == 0 && !root_gives(collective()));
  return all || (needs_ == InputNeed::root && member == spec().root) || (needs_ == InputNeed::lower && member < me());
}

bool NodeCollective::advance(PollLimits looks) {
  bool moved = false;
  while (phase_ != NodeCollectivePhase::done) {
    if (phase_ == NodeCollectivePhase::giving) {
      if (!room_->is_free(holder()) || (form_ == NodeCollectiveForm::catching_up && !is_caught_up())) return moved;
      give();
      phase_ = NodeCollectivePhase::downloading;
    } else if (phase_ == NodeCollectivePhase::downloading) {
      if (copies_on_device_ && !is_filled()) return moved;
      room_->publish(call_tag_);
      phase_ = NodeCollectivePhase::collecting;
      seen_ = 0;
      if (gathers_ && form_ == NodeCollectiveForm::single && room_->arrives_last()) lead();
      meanwhile();
    } else if (phase_ == NodeCollectivePhase::collecting) {
      if (!collected(looks)) {
        download_ahead();
        return moved;
      }
      finish_step();
    } else if (phase_ == NodeCollectivePhase::uploading) {
      if (!has_uploaded(0)) return moved;
      sums_ = pinned_copy_of_input_ = nullptr;
      phase_ = NodeCollectivePhase::done;
    } else if (phase_ == NodeCollectivePhase::before) {
      if (!is_caught_up()) return moved;
      begin_by_host();
    } else if (phase_ == NodeCollectivePhase::ending) {
      if (!has_ended()) return moved;
      phase_ = NodeCollectivePhase::done;
    } else if (!go_direct()) {
      return moved;
    }
    moved = true;
  }
  return moved;
}

void NodeCollective::give() {
  if (form_ == NodeCollectiveForm::single) {
    give_single();
  } else if (form_ == NodeCollectiveForm::halves) {
    give_halves();
  } else if (form_ == NodeCollectiveForm::undecided) {
    say_places();
  } else if (form_ == NodeCollectiveForm::proving) {
    const MappingResult proof{could_map_, could_open_};
    std::memcpy(room_->my_next_line().payload, &proof, sizeof proof);
  } else if (form_ == NodeCollectiveForm::measuring) {
    const gpu::DeviceCosts costs = measure();
    std::memcpy(room_->my_next_line().payload, &costs, sizeof costs);
  }
}

// Works between publishing a step and waiting for it.
void NodeCollective::meanwhile() {
  download_ahead();
  if (form_ == NodeCollectiveForm::single && step_ >= 1) take_single(step_ - 1);
  if (form_ == NodeCollectiveForm::halves && step_ >= 2) take_shares(step_ - 2);
  end_taking();
}

// Looks until `there` is true or no look is left.
template <class There>
bool look(PollLimits& looks, There&& there) {
  while (!there()) {
    if (looks.at_once > 0) {
      --looks.at_once;
      relax();
    } else if (looks.yielding > 0) {
      --looks.yielding;
      ::sched_yield();
    } else {
      return false;
    }
  }
  return true;
}

bool NodeCollective::collected(PollLimits& looks) {
  if (gathers_ && form_ == NodeCollectiveForm::single) {
    if (!look(looks, [&] { return room_->has_result(first_, call_tag_); })) return false;
    seen_ = members();
  }
  for (; seen_ < members(); ++seen_) {
    if (needs(seen_) && !look(looks, [&] { return room_->is_there(seen_, at_step(step_), call_tag_); })) return false;
  }
  if (needs_ == InputNeed::all) room_->all_reached(at_step(step_));
  return true;
}

void NodeCollective::finish_step() {
  if (form_ == NodeCollectiveForm::undecided) return decide();
  if (form_ == NodeCollectiveForm::proving) return finish_proof();
  if (form_ == NodeCollectiveForm::measuring) return finish_measuring();
  if (form_ == NodeCollectiveForm::catching_up) {
    form_ = NodeCollectiveForm::direct;
    phase_ = NodeCollectivePhase::reaching;
    return;
  }
  if (form_ == NodeCollectiveForm::single && hidden_ && step_ == 0) learn_steps();
  phase_ = NodeCollectivePhase::giving;
  if (++step_ < steps_) return;
  if (form_ == NodeCollectiveForm::single) take_single(parts_ - 1);
  if (form_ == NodeCollectiveForm::halves) take_shares(parts_ - 1);
  end_taking();
  if (form_ == NodeCollectiveForm::direct && by_events_) return come_behind();
  phase_ = copies_on_device_ ? NodeCollectivePhase::uploading : NodeCollectivePhase::done;
}

IndexSet NodeCollective::missing() const {
  IndexSet all;
  const bool waits_for_one =
      gathers_ && form_ == NodeCollectiveForm::single && phase_ == NodeCollectivePhase::collecting;
  for (int member = 0; member < members(); ++member) {
    if (member == me()) continue;
    const bool late = phase_ == NodeCollectivePhase::collecting && needs(member) &&
                      !room_->is_there(member, at_step(step_), call_tag_);
    const bool slow = phase_ == NodeCollectivePhase::giving && room_->is_behind(member, holder());
    if (late || slow) all.insert(member);
  }
  if (!waits_for_one || !all.empty()) return all;
  // All have given, and there is no result: the last to arrive is late, or a member that has not counted itself in.
  const int leader = room_->leader(first_);
  if (leader >= 0 && leader != me()) all.insert(leader);
  for (int member = 0; leader < 0 && member < members(); ++member) {
    if (member != me()) all.insert(member);
  }
  return all;
}

IndexSet NodeCollective::in_another() const {
  IndexSet all;
  for (int member = 0; phase_ == NodeCollectivePhase::collecting && member < members(); ++member) {
    if (needs(member) && room_->is_in_another(member, at_step(step_), call_tag_)) all.insert(member);
  }
  return all;
}

// Combines for all members; all parts, also mine, lie in the room. Does nothing if a member is in another call.
void NodeCollective::lead() {
  for (int member = 0; member < members(); ++member) {
    if (!room_->is_there(member, first_, call_tag_)) return;
    sources_[static_cast<std::size_t>(member)] = given_by(member, 0);
  }
  std::byte* const result =
      holder_ == StepStorage::line ? room_->result(first_).payload : room_->my_slot(first_, span_) + region_;
  combiner_.combine(result, sources_.data(), members(), spec().count);
  room_->publish_result(call_tag_);
}

const std::byte* NodeCollective::led() const {
  return holder_ == StepStorage::line ? room_->result(first_).payload : data(room_->leader(first_), first_) + region_;
}

void NodeCollective::give_single() {
  if (!gives_) return;
  if (hidden_ && step_ == 0) say_counts();
  if (downloads()) return download(step_);
  std::byte* const to = my_next();
  if (!for_each_) {
    const ByteRange part = of_part(gives(0), step_);
    if (part.bytes > 0) hand_mine(to, part.offset, part.bytes);
    return;
  }
  for (int member = 0; member < members(); ++member) {
    const ByteRange part = of_part(gives(member), step_);
    if (member != me() && part.bytes > 0)
      hand(to + static_cast<std::size_t>(member) * region_, input_ + part.offset, part.bytes);
  }
}

void NodeCollective::say_counts() {
  room_->my_next_line().extra = parts_;
  std::uint64_t* const numbers = room_->my_next_numbers();
  const int number = for_each_ ? members() : 1;
  for (int member = 0; member < number; ++member) numbers[member] = gives(member).bytes;
}

void NodeCollective::copy_own_block() {
  if (!takes_ || (root_gives(collective()) && !is_root())) return;
  const ByteRange from = gives(me());
  const ByteRange to = takes(me());
  if (from.bytes == 0 || output_ + to.offset == input_ + from.offset) return;
  if (downloads() && uploads())
    upload(to.offset, input_ + from.offset, from.bytes);
  else
    move(output_ + to.offset, input_ + from.offset, input_device_, from.bytes);
}

// Sets the number of steps, which the member with the most data determines, and checks that counts fit.
void NodeCollective::learn_steps() {
  const auto check = [&](int member, std::uint64_t bytes) {
    const std::size_t expected = takes(member).bytes;
    if (bytes == expected) return;
    throw Error(Code::mismatch,
                text("rank ", member, " sent ", bytes, " bytes to rank ", me(), ", which receives ", expected),
                "let both sides of a message have the same count and type");
  };
  for (int member = 0; member < members(); ++member) {
    if (member == me() || (root_gives(collective()) && member != spec().root)) continue;
    parts_ = std::max<std::size_t>(parts_, room_->line(member, first_).extra);
    if (takes_) check(member, room_->numbers(member, first_)[for_each_ ? me() : 0]);
  }
  steps_ = parts_;
}

void NodeCollective::take_single(std::size_t part) {
  if (!takes_) return;
  if (gathers_) return put(0, led(), common().bytes);
  if (reduces(collective())) {
    const ByteRange from = of_part(for_each_ ? gives(me()) : common(), part);
    const ByteRange to = of_part(takes(me()), part);
    int number = members();
    if (collective() == Collective::scan) number = me() + 1;
    if (collective() == Collective::exscan) number = me();
    if (number == 0 || to.bytes == 0) return;
    for (int member = 0; member < number; ++member)
      sources_[static_cast<std::size_t>(member)] =
          member == me() ? mine_of(part, from.offset, to.bytes) : given_by(member, part);
    if (uploads()) {
      std::byte* const sum = sums_.get() + part % sums_at_once * sum_bytes();
      combiner_.combine(sum, sources_.data(), number, to.bytes / element());
      upload(to.offset, sum, to.bytes);
    } else if (pieces_ == nullptr) {
      combiner_.combine(output_ + to.offset, sources_.data(), number, to.bytes / element());
    } else {
      if (gathered_.size() < to.bytes) gathered_.resize(to.bytes);
      combiner_.combine(gathered_.data(), sources_.data(), number, to.bytes / element());
      put(to.offset, gathered_.data(), to.bytes);
    }
    return;
  }
  for (int i = 1; i < members(); ++i) {
    const int member = (me() + i) % members();
    if (root_gives(collective()) && member != spec().root) continue;
    const ByteRange to = of_part(takes(member), part);
    if (to.bytes > 0) put(to.offset, given_by(member, part), to.bytes);
  }
}

}  // namespace lockstep::node
