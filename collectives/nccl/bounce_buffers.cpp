// SPDX-License-Identifier: Apache-2.0
// Chooses the calls whose data goes through scratch memory, and copies or scales it.
#include "collectives/nccl/bounce_buffers.hpp"

#include "collectives/gpu/combining.hpp"

namespace lockstep::nccl {
namespace {

std::size_t output_bytes(const Spec& spec, int rank) {
  std::size_t count = spec.count;
  if (spec.collective == Collective::reduce_scatter_v || spec.collective == Collective::scatter_v)
    count = spec.input_blocks.count(rank);
  if (cuts_output(spec.collective)) count = spec.output_blocks.extent();
  return count * spec.element_bytes;
}

// True if NCCL may work in registered memory for this call, provided that all members give the same parts.
bool takes_same_memory(const Spec& spec, bool knows_both) {
  switch (spec.collective) {
    case Collective::all_gather:
    case Collective::broadcast:
    case Collective::scan:  // NCCL only does an all_gather for these
    case Collective::exscan:
      return true;
    case Collective::all_reduce:
    case Collective::reduce_scatter:
      return !is_composed(spec);
    default:
      return is_sent_by_messages(spec.collective) && !is_rooted(spec.collective) && knows_both && !spec.in_place;
  }
}

void scale(const NcclEndpoint& endpoint, const NcclCall& step, std::byte* to) {
  gpu::CombineArguments all{};
  all.inputs[0] = step.input;
  all.outputs[0] = to;
  all.factors[0] = step.factor;
  all.input_count = all.output_count = 1;
  all.count = input_bytes(step.spec, endpoint.rank) / step.spec.element_bytes;
  all.scales = true;
  all.is_aligned = reinterpret_cast<std::uintptr_t>(step.input) % gpu::vector_bytes == 0;
  if (all.count > 0) gpu::backend()->begin_combine(endpoint.device, step.spec.type, all, endpoint.stream);
}

}  // namespace

BounceBuffers::BounceBuffers(const NcclEndpoint& endpoint, const RegisteredMemory& registered, const NcclCall& given)
    : endpoint_(endpoint), given_(given) {
  const Spec& spec = given.spec;
  const bool knows_input = registered.find(given.input).number != 0;
  const bool knows_output = registered.find(given.output).number != 0;
  const bool may = given.is_same_memory && takes_same_memory(spec, knows_input && knows_output);
  if (spec.op == ReduceOp::premul_sum || (knows_input && !may)) input_ = round_up(input_bytes(spec, endpoint.rank));
  // Lockstep's kernels write the output of a scan, so it needs no other memory.
  if (knows_output && !may && !is_scan(spec)) output_ = round_up(output_bytes(spec, endpoint.rank));
}

void BounceBuffers::copy_in(NcclCall& changed, std::byte* at) const {
  if (input_ > 0) {
    if (given_.spec.op == ReduceOp::premul_sum)
      scale(endpoint_, given_, at);
    else
      endpoint_.copy(at, given_.input, input_bytes(given_.spec, endpoint_.rank));
    changed.input = at;
  }
  if (output_ > 0) changed.output = at + input_;
}

void BounceBuffers::copy_back(const NcclCall& changed) const {
  if (given_.output == changed.output) return;
  const Spec& spec = given_.spec;
  if (!cuts_output(spec.collective))
    return endpoint_.copy(given_.output, changed.output, output_bytes(spec, endpoint_.rank));
  for (int i = 0; i < spec.output_blocks.parts(); ++i) {
    const std::size_t offset = spec.output_blocks.offset(i) * spec.element_bytes;
    endpoint_.copy(given_.output + offset, changed.output + offset, spec.output_blocks.count(i) * spec.element_bytes);
  }
}

}  // namespace lockstep::nccl
