// SPDX-License-Identifier: Apache-2.0
// Sends blocks between ranks in collectives that only move data.
#include "collectives/nccl/nccl_communicator_parts.hpp"

namespace lockstep::nccl {

std::size_t bytes_to(const Spec& spec, int me, int to) {
  if (cuts_input(spec.collective))
    return !is_rooted(spec.collective) || spec.root == me ? spec.gives.count(to) * spec.element_bytes : 0;
  return !is_rooted(spec.collective) || to == spec.root ? spec.takes.count(me) * spec.element_bytes : 0;
}

std::size_t bytes_from(const Spec& spec, int me, int from) {
  if (cuts_output(spec.collective))
    return !is_rooted(spec.collective) || spec.root == me ? spec.takes.count(from) * spec.element_bytes : 0;
  return from == spec.root ? spec.gives.count(me) * spec.element_bytes : 0;
}

// Reads from a copy if the call is in place. The rank's own block is copied, not sent.
void NcclCommunicator::exchange(const NcclCall& step, std::byte* scratch) {
  const Spec& spec = step.spec;
  const bool cuts_in = cuts_input(spec.collective);
  const bool cuts_out = cuts_output(spec.collective);
  const std::byte* input = step.input;
  if (spec.in_place && cuts_in && cuts_out) {
    copy(scratch, input, spec.gives.extent() * spec.element_bytes);
    input = scratch;
  }
  const auto block = [&](const lockstep::Blocks& blocks, int i, bool cut, auto* begin) {
    return begin + (cut ? blocks.offset(i) * spec.element_bytes : 0);
  };
  for (int i = 0; i < size_; ++i) {
    const std::size_t out = bytes_to(spec, rank_, i);
    const std::size_t in = bytes_from(spec, rank_, i);
    if (i == rank_) {
      if (in > 0) copy(block(spec.takes, i, cuts_out, step.output), block(spec.gives, i, cuts_in, input), in);
      continue;
    }
    if (out > 0) send(block(spec.gives, i, cuts_in, input), out, i);
    if (in > 0) receive(block(spec.takes, i, cuts_out, step.output), in, i);
  }
}

}  // namespace lockstep::nccl
