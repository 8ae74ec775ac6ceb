// SPDX-License-Identifier: Apache-2.0
// Finds the ranges of a call's data in the caller's buffers.
#include "collectives/node/call_context.hpp"

#include <algorithm>

#include "collectives/kernels/copy.hpp"

namespace lockstep::node {
namespace {

void leave_out(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) {}

std::size_t largest_block(const Spec& spec) {
  if (spec.collective == Collective::barrier) return 0;
  const bool cuts_in = cuts_input(spec.collective);
  const bool cuts_out = cuts_output(spec.collective);
  if (!cuts_in && !cuts_out) return spec.count * spec.element_bytes;
  return std::max(cuts_in ? spec.input_blocks.largest() : 0, cuts_out ? spec.output_blocks.largest() : 0) *
         spec.element_bytes;
}

}  // namespace

bool has_known_places(Collective collective) {
  return !has_own_counts(collective) && collective != Collective::scan && collective != Collective::exscan &&
         collective != Collective::barrier;
}

void CallContext::set(Room& the_room, const Tuning& the_tuning, const Call& the_call) {
  room = &the_room;
  tuning = the_tuning;
  call = &the_call;
  output = static_cast<std::byte*>(the_call.output);
  devices = {};
  has_block_for_each = cuts_input(collective());
  sends = collective() != Collective::barrier && (!only_root_sends(collective()) || is_root());
  receives = collective() != Collective::barrier && (!only_root_receives(collective()) || is_root());
  largest_block_bytes = largest_block(spec());
  // In place, the lines have already been read.
  const bool streams = !spec().in_place && plan().output_count * element() >= tuning.stream_from;
  copy_to_output = room->write_strategy().is_off() ? leave_out : streams ? stream_bytes : copy_bytes;
}

ByteRange CallContext::input_for(int member) const {
  if (has_block_for_each)
    return {spec().input_blocks.offset(member) * element(), spec().input_blocks.count(member) * element()};
  return cuts_output(collective()) ? ByteRange{0, spec().output_blocks.count(me()) * element()} : common();
}

ByteRange CallContext::output_from(int member) const {
  if (cuts_output(collective()))
    return {spec().output_blocks.offset(member) * element(), spec().output_blocks.count(member) * element()};
  return has_block_for_each ? ByteRange{0, spec().input_blocks.count(me()) * element()} : common();
}

ByteRange CallContext::share(std::size_t bytes, int member) const {
  const auto n = static_cast<std::size_t>(members());
  const std::size_t unit = element() * ((cache_line + element() - 1) / element());
  const std::size_t each = round_up((bytes + n - 1) / n, unit);
  const std::size_t begin = std::min(bytes, static_cast<std::size_t>(member) * each);
  return {begin, std::min(each, bytes - begin)};
}

OwnBlock CallContext::own_block() const {
  if (!receives || (only_root_sends(collective()) && !is_root())) return {};
  const ByteRange from = input_for(me());
  const OwnBlock block{output + output_from(me()).offset, input + from.offset, from.bytes};
  return block.to == block.from ? OwnBlock{} : block;
}

}  // namespace lockstep::node
