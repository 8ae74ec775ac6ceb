// SPDX-License-Identifier: Apache-2.0
// Passes sums from member to member.
#include "collectives/node/chain_form.hpp"

#include <algorithm>

namespace lockstep::node {
namespace {

// Counts the chunks of a call at least, so that members work at once; a guess.
constexpr std::size_t chunks_of_call = 8;

bool is_rounded_at_the_end(DataType type) { return type == DataType::f16 || type == DataType::bf16; }

}  // namespace

bool ChainForm::fits(const CallContext& call) {
  const bool is_scan = call.collective() == Collective::scan || call.collective() == Collective::exscan;
  if (!is_scan || call.members() < 3 || call.room->gpus().any_member_has()) return false;
  return call.spec().order == Order::fast && call.call->user.apply == nullptr &&
         !is_rounded_at_the_end(call.spec().type) && call.common().bytes >= call.tuning.step;
}

void ChainForm::begin(CallContext& call) {
  begin_steps(call, call.room->ring().last() + 1, 0);
  set_steps(1);
  set_needs(InputNeed::all);
  set_storage(is_last() ? StepStorage::line : StepStorage::slot);
  const std::size_t most = std::max(cache_line, std::min(call.tuning.step, call.room->memory().slot_bytes()));
  const std::size_t wanted = std::clamp(call.common().bytes / chunks_of_call, cache_line, most);
  chunk_ = std::max<std::size_t>(1, wanted / call.element()) * call.element();
  done_ = turn_ = 0;
}

// The chunks follow the step.
bool ChainForm::fill() { return true; }

bool ChainForm::has_collected(PollLimits& poll_limits) {
  return poll(poll_limits, [&] {
    while (move_chunk()) {
    }
    return done_ == call().common().bytes;
  });
}

void ChainForm::end_step() {
  next_step();
  set_phase(FormPhase::done);
}

bool ChainForm::has_input() const {
  const CallContext& all = call();
  if (is_first()) return true;
  if (!all.room->ring().has_published_in(all.me() - 1, first(), all.call_tag)) return false;
  const PairCounters& pair = all.room->memory().pair(all.me() - 1, all.me());
  return pair.written.load(std::memory_order_acquire) != pair.taken.load(std::memory_order_relaxed);
}

// Chunks of an earlier call that were not taken yet lie in another slot. Counting them is harmless, because the
// successor takes them without this call.
bool ChainForm::has_room() const {
  const CallContext& all = call();
  if (is_last()) return true;
  const PairCounters& pair = all.room->memory().pair(all.me(), all.me() + 1);
  return pair.written.load(std::memory_order_relaxed) - pair.taken.load(std::memory_order_acquire) < ring_chunks;
}

std::byte* ChainForm::ring_place(int member) const {
  return call().room->memory().slot(member, first(), 0) + turn_ % ring_chunks * round_up(chunk_, cache_line);
}

bool ChainForm::move_chunk() {
  const CallContext& all = call();
  if (done_ == all.common().bytes || !has_input() || !has_room()) return false;
  const RoomMemory& memory = all.room->memory();
  const std::size_t bytes = std::min(chunk_, all.common().bytes - done_);
  combine(is_first() ? nullptr : ring_place(all.me() - 1), is_last() ? nullptr : ring_place(all.me()), bytes);
  if (!is_first()) memory.header().count_up(memory.pair(all.me() - 1, all.me()).taken);
  if (!is_last()) memory.header().count_up(memory.pair(all.me(), all.me() + 1).written);
  done_ += bytes;
  ++turn_;
  note_moved();
  return true;
}

// In place, the input's chunk is read before the output's is written. `before` is null on the first member, and `after`
// on the last one.
void ChainForm::combine(const std::byte* before, std::byte* after, std::size_t bytes) {
  const CallContext& all = call();
  const std::byte* const mine = all.input + done_;
  std::byte* const result = all.output + done_;
  const bool is_scan = all.collective() == Collective::scan;
  const auto pass_on = [&](const std::byte* sum) {
    all.room->add_copied_bytes(bytes);
    all.room->write_strategy().write(after, sum, bytes, all.tuning.slow_write_from);
  };
  if (before == nullptr) {
    pass_on(mine);
    if (is_scan && result != mine) all.write_output(result, mine, bytes);
    return;
  }
  all.sources[0] = before;
  all.sources[1] = mine;
  const std::size_t count = bytes / all.element();
  if (is_scan) {
    all.combiner->combine(result, all.sources, 2, count);
    if (after != nullptr) pass_on(result);
    return;
  }
  if (after != nullptr) all.combiner->combine(after, all.sources, 2, count);
  all.write_output(result, before, bytes);
}

IndexSet ChainForm::missing() const {
  if (phase() != FormPhase::collecting) return InNodeForm::missing();
  IndexSet all;
  if (!is_first() && done_ < call().common().bytes && !has_input()) all.insert(call().me() - 1);
  if (!has_room()) all.insert(call().me() + 1);
  return all;
}

}  // namespace lockstep::node
