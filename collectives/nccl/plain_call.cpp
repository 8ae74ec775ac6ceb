// SPDX-License-Identifier: Apache-2.0
// Gives calls to NCCL, and sends blocks between ranks in collectives that only move data.
#include "collectives/nccl/plain_call.hpp"

#include "collectives/nccl/composed_reduction.hpp"

namespace lockstep::nccl {

std::size_t bytes_to(const Spec& spec, int me, int to) {
  if (cuts_input(spec.collective))
    return !is_rooted(spec.collective) || spec.root == me ? spec.input_blocks.count(to) * spec.element_bytes : 0;
  return !is_rooted(spec.collective) || to == spec.root ? spec.output_blocks.count(me) * spec.element_bytes : 0;
}

std::size_t bytes_from(const Spec& spec, int me, int from) {
  if (cuts_output(spec.collective))
    return !is_rooted(spec.collective) || spec.root == me ? spec.output_blocks.count(from) * spec.element_bytes : 0;
  return from == spec.root ? spec.input_blocks.count(me) * spec.element_bytes : 0;
}

namespace {

void reduce(const NcclEndpoint& endpoint, const NcclCall& step) {
  const Spec& spec = step.spec;
  switch (spec.collective) {
    case Collective::all_reduce:
      return endpoint.library.all_reduce(endpoint.member, step.input, step.output, spec.count, spec.type, spec.op,
                                         endpoint.stream);
    case Collective::reduce:
      return endpoint.library.reduce(endpoint.member, step.input, step.output, spec.count, spec.type, spec.op,
                                     spec.root, endpoint.stream);
    default:
      return endpoint.library.reduce_scatter(endpoint.member, step.input, step.output, spec.count, spec.type, spec.op,
                                             endpoint.stream);
  }
}

void move(const NcclEndpoint& endpoint, const NcclCall& step) {
  const std::size_t bytes = step.spec.count * step.spec.element_bytes;
  if (step.spec.collective == Collective::all_gather)
    return endpoint.library.all_gather(endpoint.member, step.input, step.output, bytes, endpoint.stream);
  const std::byte* const from = step.spec.root == endpoint.rank ? step.input : step.output;
  endpoint.library.broadcast(endpoint.member, from, step.output, bytes, step.spec.root, endpoint.stream);
}

bool is_copied(const Spec& spec) {
  return is_sent_by_messages(spec.collective) && spec.in_place && cuts_input(spec.collective) &&
         cuts_output(spec.collective);
}

// Reads from a copy if the call is in place. The rank's own block is copied, not sent.
void exchange(const NcclEndpoint& endpoint, const NcclCall& step, std::byte* scratch) {
  const Spec& spec = step.spec;
  const bool cuts_in = cuts_input(spec.collective);
  const bool cuts_out = cuts_output(spec.collective);
  const std::byte* input = step.input;
  if (is_copied(spec)) {
    endpoint.copy(scratch, input, spec.input_blocks.extent() * spec.element_bytes);
    input = scratch;
  }
  const auto block = [&](const lockstep::Blocks& blocks, int i, bool cut, auto* begin) {
    return begin + (cut ? blocks.offset(i) * spec.element_bytes : 0);
  };
  for (int i = 0; i < endpoint.size; ++i) {
    const std::size_t out = bytes_to(spec, endpoint.rank, i);
    const std::size_t in = bytes_from(spec, endpoint.rank, i);
    if (i == endpoint.rank) {
      if (in > 0)
        endpoint.copy(block(spec.output_blocks, i, cuts_out, step.output), block(spec.input_blocks, i, cuts_in, input),
                      in);
      continue;
    }
    if (out > 0) endpoint.send(block(spec.input_blocks, i, cuts_in, input), out, i);
    if (in > 0) endpoint.receive(block(spec.output_blocks, i, cuts_out, step.output), in, i);
  }
}

}  // namespace

std::size_t scratch_bytes(const NcclEndpoint& endpoint, const NcclCall& call) {
  if (is_composed(call.spec)) return ComposedReduction::scratch_bytes(endpoint, call);
  return is_copied(call.spec) ? round_up(call.spec.input_blocks.extent() * call.spec.element_bytes) : 0;
}

void begin_plain(const NcclEndpoint& endpoint, const NcclCall& call, std::byte* scratch) {
  if (lockstep::reduces(call.spec.collective)) return reduce(endpoint, call);
  if (is_sent_by_messages(call.spec.collective)) return exchange(endpoint, call, scratch);
  move(endpoint, call);
}

}  // namespace lockstep::nccl
