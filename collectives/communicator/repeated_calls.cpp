// SPDX-License-Identifier: Apache-2.0
// Finds the call that a request repeats, and gives it the request's buffers.
#include "collectives/communicator/repeated_calls.hpp"

#include <algorithm>

#include "collectives/communicator/partition_cache.hpp"
#include "collectives/communicator/staging.hpp"

namespace lockstep::detail {
namespace {

std::uintptr_t distance_of(const CallRequest& request) {
  return reinterpret_cast<std::uintptr_t>(request.input.data) - reinterpret_cast<std::uintptr_t>(request.output.data);
}

// True if the request of an unequal form has the blocks that were checked before. In gather_v and scatter_v the other
// members' counts do not concern a member that is not the root.
bool has_same_blocks(const Plan& plan, const CallRequest& request) {
  if (is_rooted(request.collective) && plan.index != request.root) return true;
  if (cuts_input(request.collective) && !are_cut_as(plan.spec.input_blocks, request.send_counts, request.send_offsets))
    return false;
  return !cuts_output(request.collective) ||
         are_cut_as(plan.spec.output_blocks, request.receive_counts, request.receive_offsets);
}

// True if the call has the counts that were checked before, and its buffers are the same or apart as then.
bool is_same(const RepeatedCalls::RepeatedCall& known, const CallRequest& request, std::uint64_t subject) {
  if (known.collective != request.collective || known.type != request.type || known.op != request.reduction.op ||
      known.order != request.order || known.root != request.root || known.element_bytes != request.element_bytes ||
      known.input_count != request.input.count || known.output_count != request.output.count ||
      known.subject != subject)
    return false;
  if (is_unequal(request.collective) && !has_same_blocks(*known.call.plan, request)) return false;
  const auto in = reinterpret_cast<std::uintptr_t>(request.input.data);
  const auto out = reinterpret_cast<std::uintptr_t>(request.output.data);
  if ((in == 0 && known.input_count > 0) || (out == 0 && known.output_count > 0)) return false;
  if (distance_of(request) == known.distance) return true;
  const bool apart =
      in + known.input_count * known.element_bytes <= out || out + known.output_count * known.element_bytes <= in;
  return apart && !known.in_place;
}

}  // namespace

RepeatedCalls::Match RepeatedCalls::find(const CallRequest& request, std::uint64_t subject) {
  RepeatedCall* known = place_for(request, subject);
  if (known == nullptr) return {};
  if (!is_same(*known, request, subject)) {
    // Two calls that take turns, such as a barrier and another one, must not drive each other out of their place.
    RepeatedCall* const beside = &calls_[static_cast<std::size_t>(known - calls_.data()) ^ 1U];
    if (!is_same(*beside, request, subject))
      return {.place = known->call.plan != nullptr && beside->call.plan == nullptr ? beside : known};
    known = beside;
  }
  known->call.input = request.input.data;
  known->call.output = request.output.data;
  known->call.origin = request.origin;
  return {.call = &known->call};
}

// Returns the place for calls of this kind. Returns null for calls that need more checks than counts and addresses.
RepeatedCalls::RepeatedCall* RepeatedCalls::place_for(const CallRequest& request, std::uint64_t subject) {
  if (request.error != nullptr || request.reduction.op >= ReduceOp::premul_sum || !request.input.contiguous() ||
      !request.output.contiguous() || request.stream ||
      (is_unequal(request.collective) && device_path_.query_bytes() != DevicePath::never) ||
      std::max(request.input.count, request.output.count) * request.element_bytes >= device_path_.query_bytes() ||
      where_is(request.input).on_device() || where_is(request.output).on_device())
    return nullptr;
  std::size_t counts = 0;
  if (is_unequal(request.collective)) {
    for (const std::size_t count : request.send_counts) counts = counts * 31 + count;
    for (const std::size_t count : request.receive_counts) counts = counts * 31 + count;
  }
  const auto key = static_cast<std::size_t>(request.collective) * 5 + static_cast<std::size_t>(request.type) +
                   (request.output.count | request.input.count) * 7 + counts * 13 + subject;
  return &calls_[(key ^ key >> 7U) % calls_.size()];
}

void RepeatedCalls::remember(RepeatedCall& place, const CallRequest& request, std::uint64_t subject, const Call& call) {
  place = {.collective = request.collective,
           .type = request.type,
           .op = request.reduction.op,
           .order = request.order,
           .root = request.root,
           .in_place = call.plan->spec.in_place,
           .distance = distance_of(request),
           .element_bytes = request.element_bytes,
           .input_count = request.input.count,
           .output_count = request.output.count,
           .subject = subject,
           .call = call};
}

}  // namespace lockstep::detail
