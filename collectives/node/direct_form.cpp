// SPDX-License-Identifier: Apache-2.0
// Works on the buffers of other members.
#include "collectives/node/direct_form.hpp"

#include <algorithm>

#include "collectives/kernels/copy.hpp"

namespace lockstep::node {

void DirectForm::begin(CallContext& call, const PeerBuffers& peers, const InNodeForm& before) {
  peers_ = &peers;
  done_ = turn_bytes_ = 0;
  copied_ = 0;
  begin_steps(call, before.first(), before.step());
  set_steps(step() + 1);
  set_needs(InputNeed::all);
}

// Returns false while a member has given up, until this one hears of it.
bool DirectForm::reach() {
  const CallContext& all = call();
  {
    const PeerAccess access(all.room->access());
    if (!access.is_open() || !work()) return false;
  }
  // All data that others use must stay until they say that they have finished.
  if (all.collective() == Collective::broadcast || all.collective() == Collective::scatter)
    set_needs(all.is_root() ? InputNeed::all : need_of_receivers());
  if (all.collective() == Collective::gather && !all.is_root()) set_needs(InputNeed::root);
  return true;
}

void DirectForm::end_step() {
  next_step();
  set_phase(FormPhase::done);
}

// A step of a round must not keep the member from its messages for long.
bool DirectForm::ends_turn(std::size_t bytes) {
  turn_bytes_ += bytes;
  if (!call().plan().is_step || turn_bytes_ < most_of_turn) return false;
  turn_bytes_ = 0;
  set_worked();
  return true;
}

// Combines this member's share from all inputs block by block, and writes each block to all outputs while it is in the
// cache.
bool DirectForm::reduce() {
  const CallContext& all = call();
  const ByteRange mine = all.has_block_for_each ? all.input_for(all.me()) : all.share(all.common().bytes, all.me());
  const bool streams = all.copy_to_output == stream_bytes;
  const std::size_t block = std::max<std::size_t>(1, block_bytes / all.element()) * all.element();
  const auto taker = static_cast<std::size_t>(all.collective() == Collective::reduce ? all.spec().root : all.me());
  std::byte* const to = all.has_block_for_each ? all.output : peers_->outputs[taker] + mine.offset;
  block_.resize(streams ? block + cache_line : 0);
  while (done_ < mine.bytes) {
    if (all.room->access().was_given_up()) return false;
    const std::size_t at = done_;
    const std::size_t bytes = std::min(block, mine.bytes - at);
    for (std::size_t member = 0; member < peers_->inputs.size(); ++member)
      all.sources[member] = peers_->inputs[member] + mine.offset + at;
    std::byte* const result = streams ? aligned(block_.data()) : to + at;
    all.combiner->combine(result, all.sources, all.members(), bytes / all.element());
    if (streams) stream_bytes(to + at, result, bytes);
    const auto& outputs = peers_->outputs;
    for (std::size_t i = 1; all.collective() == Collective::all_reduce && i < outputs.size(); ++i)
      all.write_output(outputs[(taker + i) % outputs.size()] + mine.offset + at, result, bytes);
    done_ += bytes;
    if (done_ < mine.bytes && ends_turn(bytes * peers_->inputs.size())) return false;
  }
  return true;
}

// Begins with the member after this one, so that members do not all read from one.
bool DirectForm::copy(std::size_t at_once) {
  const CallContext& all = call();
  if (!all.receives) return true;
  if (copied_ == 0) {
    const OwnBlock own = all.own_block();
    if (own.bytes > 0) read(own.to, own.from, all.devices.input, own.bytes);
    copied_ = 1;
  }
  for (; copied_ < all.members(); ++copied_) {
    if (!copy_from((all.me() + copied_) % all.members(), at_once)) return false;
    done_ = 0;
  }
  return true;
}

// Returns false if a member has given up meanwhile, because its memory may be gone.
bool DirectForm::copy_from(int member, std::size_t at_once) {
  const CallContext& all = call();
  const auto m = static_cast<std::size_t>(member);
  const std::byte* const theirs = peers_->inputs[m];
  const std::uintptr_t remote_input = peers_->remote_inputs[m];
  if (theirs == nullptr && remote_input == 0) return true;  // only the root sends
  // In an equal form all blocks have equal lengths and lie in the same places.
  const std::size_t skip =
      all.has_block_for_each ? static_cast<std::size_t>(all.me()) * all.spec().count * all.element() : 0;
  const ByteRange to = all.output_from(member);
  if (all.plan().is_step) at_once = std::min(at_once, most_of_turn);
  while (done_ < to.bytes) {
    if (all.room->access().was_given_up()) return false;
    const std::size_t at = done_;
    const std::size_t bytes = std::min(at_once, to.bytes - at);
    done_ += bytes;
    std::byte* const target = all.output + to.offset + at;
    if (remote_input == 0) {
      read(target, theirs + skip + at, peers_->devices[m], bytes);
    } else {
      all.room->add_copied_bytes(bytes);
      all.room->buffers().reader().read(member, target, remote_input + skip + at, bytes);
    }
    if (ends_turn(bytes)) return false;
  }
  return true;
}

void DirectForm::read(std::byte* to, const std::byte* from, int /*device*/, std::size_t bytes) {
  call().write_output(to, from, bytes);
}

}  // namespace lockstep::node
