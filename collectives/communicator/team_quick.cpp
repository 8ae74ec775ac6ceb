// SPDX-License-Identifier: Apache-2.0
// Calls that were made before: they are run again without being checked or planned anew.
#include "collectives/communicator/team_parts.hpp"

namespace lockstep::detail {

void Team::run_quick(Quick& quick, const Ask& ask) {
  const Use use(*this, ask.origin);
  if (!is_same(quick, ask)) {
    const Ready ready = ready_from(ask, Asking::never);
    if (ready.call.plan->in_node) remember(quick, ask, ready.call);
    return engine_->run(ready.call);
  }
  refuse_if_closed();
  quick.call.input = ask.input.data;
  quick.call.output = ask.output.data;
  quick.call.origin = ask.origin;
  engine_->run(quick.call);
}

// Where a call of this kind is kept; nothing for what needs more than a look at counts and addresses.
Team::Quick* Team::quick_for(const Ask& ask) {
  if (ask.wrong != nullptr || ask.reduction.op >= ReduceOp::premul_sum || !ask.input.contiguous() ||
      !ask.output.contiguous() || is_unequal(ask.collective) || ask.stream || asks_where(ask) ||
      where_is(ask.input).on_device() || where_is(ask.output).on_device())
    return nullptr;
  const auto key = static_cast<std::size_t>(ask.collective) * 5 + static_cast<std::size_t>(ask.type) +
                   (ask.output.count | ask.input.count) * 7;
  return &quick_[(key ^ key >> 7U) % quick_.size()];
}

// Counts that were checked before, and buffers that are one or apart.
bool Team::is_same(const Quick& quick, const Ask& ask) {
  if (quick.collective != ask.collective || quick.type != ask.type || quick.op != ask.reduction.op ||
      quick.order != ask.order || quick.root != ask.root || quick.element_bytes != ask.element_bytes ||
      quick.input_count != ask.input.count || quick.output_count != ask.output.count)
    return false;
  const auto in = reinterpret_cast<std::uintptr_t>(ask.input.data);
  const auto out = reinterpret_cast<std::uintptr_t>(ask.output.data);
  if ((in == 0 && quick.input_count > 0) || (out == 0 && quick.output_count > 0)) return false;
  if (in == out) return quick.in_place;
  const bool apart =
      in + quick.input_count * quick.element_bytes <= out || out + quick.output_count * quick.element_bytes <= in;
  return apart && !quick.in_place;
}

void Team::remember(Quick& quick, const Ask& ask, const Call& call) {
  quick = {.collective = ask.collective,
           .type = ask.type,
           .op = ask.reduction.op,
           .order = ask.order,
           .root = ask.root,
           .in_place = ask.input.data == ask.output.data,
           .element_bytes = ask.element_bytes,
           .input_count = ask.input.count,
           .output_count = ask.output.count,
           .call = call};
}

}  // namespace lockstep::detail
