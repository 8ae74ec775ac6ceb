// SPDX-License-Identifier: Apache-2.0
// Runs calls in one phase.
#include "collectives/node/one_phase_form.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/node/small_all_reduce_form.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::node {

void OnePhaseForm::begin(CallContext& call, SlotCopies* copies) {
  const Collective collective = call.collective();
  is_hidden_ = has_own_counts(collective);
  begin_steps(call, call.room->ring().last() + 1, 0);
  // In place, data could arrive where other data have still to be sent.
  if (collective == Collective::all_to_all_v && call.spec().in_place &&
      !(call.spec().input_blocks == call.spec().output_blocks))
    keep_input(copies);
  begin_parts(call, copies);
  // Nobody reads the last member of a scan; its own part of a reduction comes from its slot only if it was on a GPU.
  is_unread_ = (collective == Collective::scan || collective == Collective::exscan) &&
               call.me() + 1 == call.members() && download() == nullptr;
  choose_storage(call.largest_block_bytes);
  set_steps(parts());
  set_needs(is_hidden_ && !only_root_sends(collective) ? InputNeed::all : need());
  copy_own_block_on_gpu();
  if (upload() != nullptr && call.receives && reduces(collective) && !is_combined_by_last_)
    upload()->reserve_results(round_up(std::min(part_bytes(), call.largest_block_bytes), cache_line));
  are_moves_listed_ = false;
}

// Chooses the storage of a step, and divides the data. `most`: bytes of the largest block.
void OnePhaseForm::choose_storage(std::size_t most) {
  const CallContext& all = call();
  const Collective collective = all.collective();
  const bool for_each = all.has_block_for_each;
  const auto n = static_cast<std::size_t>(for_each ? all.members() : 1);
  StepStorage storage = StepStorage::slot;
  const std::size_t least = n * round_up(std::max(all.element(), cache_line), cache_line);
  const std::size_t room = std::min(all.room->memory().slot_bytes(), std::max(all.tuning.step, least));
  region_ = for_each ? room / n / cache_line * cache_line : room;
  std::size_t piece = reduces(collective) ? region_ / all.element() * all.element() : region_;
  // A user's function may need better alignment than a place beside a number has.
  if (!is_hidden_ && n * most <= Line::room && all.call->user.apply == nullptr) {
    storage = StepStorage::line;
    region_ = most;
  }
  const std::size_t padded = round_up(most, cache_line);
  // A member that sends to one member, or from one, may be ahead of it; the ring of pages is longer.
  const bool has_one_side = only_root_sends(collective) || only_root_receives(collective) ||
                            (collective == Collective::exscan && all.members() == 2);
  if (!is_hidden_ && storage == StepStorage::slot && n * padded <= page_bytes && has_one_side) {
    storage = StepStorage::page;
    region_ = padded;
  }
  if (storage != StepStorage::slot) piece = std::max(piece, most);
  cut(most, piece);
  is_combined_by_last_ = collective == Collective::all_reduce && parts() == 1 && most < all.tuning.each_combines_from &&
                         all.members() > 1 &&
                         all.call->user.apply == nullptr &&  // all members must see the exception of a user's function
                         (storage == StepStorage::line || 2 * padded <= all.room->memory().slot_bytes());
  if (is_combined_by_last_ && storage == StepStorage::slot) region_ = padded;
  // Data from one member to all go in a few parts, so that one is read while the next is written.
  constexpr std::size_t few = 4;
  if (only_root_sends(collective) && !is_hidden_ && storage == StepStorage::slot)
    cut(most, std::clamp(round_up(most / few, cache_line), std::min(all.tuning.flow_from, region_), region_));
  set_storage(storage);
  const std::size_t block = round_up(std::min(part_bytes(), most), cache_line);
  // Without the others' sizes a member does not know their spans.
  set_span(is_combined_by_last_ ? 2 * padded : n * std::min(region_, block), !is_hidden_);
  if (for_each && span() > 0) region_ = block;
}

InputNeed OnePhaseForm::need() const {
  const Collective collective = call().collective();
  if (collective == Collective::scan || collective == Collective::exscan) return InputNeed::lower;
  if (only_root_sends(collective)) return InputNeed::root;
  return only_root_receives(collective) && !call().is_root() ? InputNeed::none : InputNeed::all;
}

void OnePhaseForm::keep_input(SlotCopies* copies) {
  CallContext& all = call();
  if (copies != nullptr && copies->download() != nullptr) return copies->keep_input();
  kept_input_.assign(all.input, all.input + all.spec().input_blocks.extent() * all.element());
  all.input = kept_input_.data();
}

void OnePhaseForm::list_moves() {
  const CallContext& all = call();
  moves_.clear();
  are_moves_listed_ = true;
  repeats_by_moves_ = is_repeatable() && parts() == 1 && all.collective() != Collective::all_reduce &&
                      !all.devices.has_any() && all.call->pieces == nullptr && !all.room->write_strategy().is_off();
  if (!repeats_by_moves_) return;
  if (!is_unread_) {
    each_range(0, false, [&](std::size_t at, std::size_t offset, std::size_t bytes) {
      moves_.sent.push_back({all.me(), at, offset, bytes});
    });
  }
  if (reduces(all.collective())) return list_result();
  const std::size_t at = all.has_block_for_each ? static_cast<std::size_t>(all.me()) * region_ : 0;
  each_received(0, [&](int member, const ByteRange& to) {
    moves_.received.push_back({member, at, to.offset, to.bytes});
  });
  const OwnBlock own = all.own_block();
  if (own.bytes == 0) return;
  moves_.own = {static_cast<std::size_t>(own.from - all.input), static_cast<std::size_t>(own.to - all.output),
                own.bytes};
}

// Notes the places of the one part of a result, and of its sources.
void OnePhaseForm::list_result() {
  const CallContext& all = call();
  const ByteRange to = all.output_from(all.me());
  moves_.result = {.at = all.has_block_for_each ? static_cast<std::size_t>(all.me()) * region_ : 0,
                   .from = all.has_block_for_each ? all.input_for(all.me()).offset : 0,
                   .to = to.offset,
                   .count = to.bytes / all.element(),
                   .members = all.receives && to.bytes > 0 ? contributions() : 0};
}

bool OnePhaseForm::repeat(PollLimits& poll_limits) {
  begin_steps(call(), call().room->ring().last() + 1, 0);
  if (!are_moves_listed_) list_moves();
  if (repeats_by_moves_) return repeat_moves(poll_limits);
  advance(poll_limits);
  return is_done();
}

// Takes the place of the phases. Programs repeat small calls most often, so this computes no range, and a small call
// makes no virtual call.
bool OnePhaseForm::repeat_moves(PollLimits& poll_limits) {
  CallContext& all = call();
  if (!all.room->ring().is_free(storage())) return false;
  const auto copy = [&](std::byte* to, const std::byte* from, std::size_t bytes) {
    all.room->add_copied_bytes(bytes);
    if (bytes < WriteStrategy::timed_from)
      std::memcpy(to, from, bytes);
    else
      all.copy_to_output(to, from, bytes);
  };
  std::byte* const mine = my_next();
  for (const Move& move : moves_.sent) {
    if (move.bytes < WriteStrategy::timed_from)
      copy(mine + move.at, all.input + move.offset, move.bytes);
    else
      input().publish(mine + move.at, move.offset, move.bytes);
  }
  publish();
  const OwnMove& own = moves_.own;
  if (own.bytes > 0) copy(all.output + own.to, all.input + own.from, own.bytes);
  if (!has_all_steps(poll_limits)) return false;
  if (moves_.result.members > 0) combine_result();
  for (const Move& move : moves_.received)
    copy(all.output + move.offset, data(move.member, first()) + move.at, move.bytes);
  set_phase(FormPhase::done);
  return true;
}

void OnePhaseForm::combine_result() {
  const CallContext& all = call();
  const ListedResult& result = moves_.result;
  for (int member = 0; member < result.members; ++member)
    all.sources[member] = member == all.me() ? all.input + result.from : data(member, first()) + result.at;
  all.combiner->combine(all.output + result.to, all.sources, result.members, result.count);
}

bool OnePhaseForm::fill() {
  if (!call().sends || is_unread_) return true;
  if (is_hidden_ && step() == 0) publish_counts();
  if (download() != nullptr) {
    begin_download(step());
    return true;
  }
  std::byte* const to = my_next();
  each_range(step(), false,
             [&](std::size_t at, std::size_t offset, std::size_t bytes) { input().publish(to + at, offset, bytes); });
  return true;
}

template <class Use>
void OnePhaseForm::each_received(std::size_t part, const Use& use) const {
  const CallContext& all = call();
  for (int i = 1; all.receives && i < all.members(); ++i) {
    const int member = (all.me() + i) % all.members();
    if (only_root_sends(all.collective()) && member != all.spec().root) continue;
    const ByteRange to = of_part(all.output_from(member), part);
    if (to.bytes > 0) use(member, to);
  }
}

// My own block of a reduction on a GPU is combined from the slot (`has_mine`).
template <class Use>
void OnePhaseForm::each_range(std::size_t step, bool has_mine, const Use& use) const {
  if (!call().sends || step >= parts()) return;
  const int number = call().has_block_for_each ? call().members() : 1;
  for (int member = 0; member < number; ++member) {
    const ByteRange part = of_part(call().input_for(member), step);
    if (part.bytes > 0 && (!call().has_block_for_each || member != call().me() || has_mine))
      use(static_cast<std::size_t>(member) * region_, part.offset, part.bytes);
  }
}

void OnePhaseForm::copy_down(std::size_t step, SlotDownload& download) {
  std::byte* const to = my_next();
  each_range(step, reduces(call().collective()),
             [&](std::size_t at, std::size_t offset, std::size_t bytes) { download.copy(to + at, offset, bytes); });
}

void OnePhaseForm::after_publishing() {
  if (is_combined_by_last_ && call().room->results().arrives_last(first())) combine_for_all();
  begin_next_download();
  copy_own_part(step());
  if (step() >= 1) read_part(step() - 1);
  mark_uploads();
}

bool OnePhaseForm::has_collected(PollLimits& poll_limits) {
  if (!is_combined_by_last_) return has_all_steps(poll_limits);
  if (!poll(poll_limits, [&] { return call().room->results().has_published_in(first(), call().call_tag); }))
    return false;
  call().room->ring().note_reached_by_all(at_step(step()));
  return true;
}

void OnePhaseForm::end_step() {
  if (is_hidden_ && step() == 0) learn_steps();
  if (next_step()) return;
  read_part(parts() - 1);
  mark_uploads();
  end_form();
}

IndexSet OnePhaseForm::missing() const {
  IndexSet all = InNodeForm::missing();
  if (all.empty() && is_combined_by_last_ && phase() == FormPhase::collecting)
    return missing_to_combine(*call().room, first());
  return all;
}

// Combines for all members; all parts, also mine, lie in the room. Does nothing if a member is in another call.
void OnePhaseForm::combine_for_all() {
  const CallContext& all = call();
  for (int member = 0; member < all.members(); ++member) {
    if (!all.room->ring().has_published_in(member, first(), all.call_tag)) return;
    all.sources[member] = published_by(member, 0);
  }
  std::byte* const result = storage() == StepStorage::line
                                ? all.room->results().line(first()).payload
                                : all.room->memory().slot(all.me(), first(), span()) + region_;
  all.combiner->combine(result, all.sources, all.members(), all.spec().count);
  all.room->results().publish(first(), all.call_tag);
}

const std::byte* OnePhaseForm::combined() const {
  const StepResults& results = call().room->results();
  return storage() == StepStorage::line ? results.line(first()).payload
                                        : data(results.leader(first()), first()) + region_;
}

void OnePhaseForm::publish_counts() {
  Room& room = *call().room;
  room.ring().my_next_line().beside_data = parts();
  BlockHeader* const table = room.memory().table(room.index(), first());
  const int number = call().has_block_for_each ? call().members() : 1;
  for (int member = 0; member < number; ++member) table[member].bytes = call().input_for(member).bytes;
}

// Sets the number of steps, which the member with the most data determines, and checks that counts fit.
void OnePhaseForm::learn_steps() {
  const CallContext& all = call();
  const auto check = [&](int member, std::uint64_t bytes) {
    const std::size_t expected = all.output_from(member).bytes;
    if (bytes == expected) return;
    throw Error(Code::mismatch,
                text("rank ", member, " sent ", bytes, " bytes to rank ", all.me(), ", which receives ", expected),
                "let both sides of a message have the same count and type");
  };
  for (int member = 0; member < all.members(); ++member) {
    if (member == all.me() || (only_root_sends(all.collective()) && member != all.spec().root)) continue;
    set_parts(std::max<std::size_t>(parts(), all.room->ring().line(member, first()).beside_data));
    if (all.receives)
      check(member, all.room->memory().table(member, first())[all.has_block_for_each ? all.me() : 0].bytes);
  }
  set_steps(parts());
  set_needs(need());
}

void OnePhaseForm::copy_own_block_on_gpu() {
  if (!call().devices.has_any() || reduces(call().collective())) return;
  const OwnBlock own = call().own_block();
  if (own.bytes == 0) return;
  if (download() != nullptr && upload() != nullptr)
    upload()->write(static_cast<std::size_t>(own.to - call().output), own.from, own.bytes);
  else
    gpu::backend()->copy(std::max(call().devices.input, call().devices.output), {own.to, 0},
                         {const_cast<std::byte*>(own.from), 0}, own.bytes, 1);
}

// The others wait for what this member publishes, so its own block follows behind that. Its parts are in a cache then
// if they were just published.
void OnePhaseForm::copy_own_part(std::size_t part) {
  if (call().devices.has_any() || reduces(call().collective())) return;
  const OwnBlock own = call().own_block();
  const ByteRange range = of_part({0, own.bytes}, part);
  if (range.bytes > 0) call().write_output(own.to + range.offset, own.from + range.offset, range.bytes);
}

void OnePhaseForm::read_part(std::size_t part) {
  const CallContext& all = call();
  if (!all.receives) return;
  if (is_combined_by_last_) return output().write(0, combined(), all.common().bytes);
  if (reduces(all.collective())) return combine_part(part);
  each_received(
      part, [&](int member, const ByteRange& to) { output().write(to.offset, published_by(member, part), to.bytes); });
}

// Returns the number of members, from the first one on, whose data my result combines.
int OnePhaseForm::contributions() const {
  if (call().collective() == Collective::scan) return call().me() + 1;
  return call().collective() == Collective::exscan ? call().me() : call().members();
}

void OnePhaseForm::combine_part(std::size_t part) {
  const CallContext& all = call();
  const ByteRange from = of_part(all.has_block_for_each ? all.input_for(all.me()) : all.common(), part);
  const ByteRange to = of_part(all.output_from(all.me()), part);
  const int number = contributions();
  if (number == 0 || to.bytes == 0) return;
  for (int member = 0; member < number; ++member)
    all.sources[member] =
        member == all.me() && download() == nullptr ? input().read(from.offset, to.bytes) : published_by(member, part);
  std::byte* const result = output().place_of_result(to.offset, to.bytes);
  all.combiner->combine(result, all.sources, number, to.bytes / all.element());
  output().write(to.offset, result, to.bytes);
}

}  // namespace lockstep::node
