// SPDX-License-Identifier: Apache-2.0
// Runs repeated calls without checking and planning them again.
#include "collectives/communicator/communicator_core_parts.hpp"

namespace lockstep::detail {

void CommunicatorCore::run_repeated(RepeatedCall& repeated_call, const CallRequest& request) {
  const ExclusiveUse use(*this, request.origin);
  if (!is_same(repeated_call, request)) {
    const BoundCall bound_call = bound_call_from(request, QueryRule::never);
    if (bound_call.call.plan->in_node && !options_.strict) remember(repeated_call, request, bound_call.call);
    return engine_->run(bound_call.call);
  }
  refuse_if_closed();
  repeated_call.call.input = request.input.data;
  repeated_call.call.output = request.output.data;
  repeated_call.call.origin = request.origin;
  engine_->run(repeated_call.call);
}

// Returns the slot for calls of this kind. Returns null for calls that need more checks than counts and addresses.
CommunicatorCore::RepeatedCall* CommunicatorCore::repeated_call_for(const CallRequest& request) {
  if (request.wrong != nullptr || request.reduction.op >= ReduceOp::premul_sum || !request.input.contiguous() ||
      !request.output.contiguous() || is_unequal(request.collective) || request.stream || queries_where(request) ||
      where_is(request.input).on_device() || where_is(request.output).on_device())
    return nullptr;
  const auto key = static_cast<std::size_t>(request.collective) * 5 + static_cast<std::size_t>(request.type) +
                   (request.output.count | request.input.count) * 7 + subject_key_;
  return &repeated_calls_[(key ^ key >> 7U) % repeated_calls_.size()];
}

// True if the call has the counts that were checked before, and its buffers are the same or apart as then.
bool CommunicatorCore::is_same(const RepeatedCall& repeated_call, const CallRequest& request) const {
  if (repeated_call.collective != request.collective || repeated_call.type != request.type ||
      repeated_call.op != request.reduction.op || repeated_call.order != request.order ||
      repeated_call.root != request.root || repeated_call.element_bytes != request.element_bytes ||
      repeated_call.input_count != request.input.count || repeated_call.output_count != request.output.count ||
      repeated_call.subject != subject_key_)
    return false;
  const auto in = reinterpret_cast<std::uintptr_t>(request.input.data);
  const auto out = reinterpret_cast<std::uintptr_t>(request.output.data);
  if ((in == 0 && repeated_call.input_count > 0) || (out == 0 && repeated_call.output_count > 0)) return false;
  if (in == out) return repeated_call.in_place;
  const bool apart = in + repeated_call.input_count * repeated_call.element_bytes <= out ||
                     out + repeated_call.output_count * repeated_call.element_bytes <= in;
  return apart && !repeated_call.in_place;
}

void CommunicatorCore::remember(RepeatedCall& repeated_call, const CallRequest& request, const Call& call) const {
  repeated_call = {.collective = request.collective,
                   .type = request.type,
                   .op = request.reduction.op,
                   .order = request.order,
                   .root = request.root,
                   .in_place = request.input.data == request.output.data,
                   .element_bytes = request.element_bytes,
                   .input_count = request.input.count,
                   .output_count = request.output.count,
                   .subject = subject_key_,
                   .call = call};
}

}  // namespace lockstep::detail
