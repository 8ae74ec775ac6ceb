// SPDX-License-Identifier: Apache-2.0
// Chooses the forms of a call in a node.
#include "collectives/node/node_collective.hpp"

#include "collectives/node/gpu_benefit.hpp"
#include "topology/base/cancellation_deferral.hpp"

namespace lockstep::node {

void NodeCollective::begin(Room& room, const Tuning& tuning, const Call& call, const std::byte* input,
                           std::uint32_t call_tag, AddressQueries address_queries) {
  call_.set(room, tuning, call);
  call_.input = input;
  call_.call_tag = call_tag;
  is_done_ = false;
  if (reduces(call_.collective())) combiner_.set(call);
  sources_.resize(static_cast<std::size_t>(call_.members()));
  call_.combiner = &combiner_;
  call_.sources = sources_.data();
  const bool reads_processes = may_read_processes(call_);
  begins_anew_ = reads_processes;
  const bool asks = reads_processes || asks_for_addresses(call_, address_queries);
  find_gpus(asks);
  if (!asks) return begin_by_host();
  addresses_.begin(call_, peers_, gpu_forms_ != nullptr ? &gpu_forms_->order : nullptr, reads_processes);
  form_ = &addresses_;
}

// Repeats a call with streams between pairs of members, or begins anew.
void NodeCollective::repeat_otherwise(const std::byte* input, std::uint32_t call_tag, AddressQueries address_queries,
                                      PollLimits poll_limits) {
  // A driver is called if there is one.
  const CancellationDeferral cancellation(gpu::backend() != nullptr ? DefersCancellation::at_once
                                                                    : DefersCancellation::later);
  const bool is_streamed = !begins_anew_ && (form_ == &pairwise_ || form_ == &chain_);
  if (is_streamed) set_buffers(input, call_tag);
  if (is_streamed && form_ == &pairwise_ && pairwise_.is_repeatable())
    is_done_ = pairwise_.repeat(poll_limits);
  else if (!is_streamed || !begin_stream())
    begin(*call_.room, call_.tuning, *call_.call, input, call_tag, address_queries);
  advance(poll_limits);  // a block may come in chunks, and others may have come
}

void NodeCollective::reserve(const Call& call) {
  const auto n = static_cast<std::size_t>(call.plan->size);
  sources_.reserve(n);
  peers_.reserve(n);
  one_phase_.reserve(n);
  pairwise_.reserve(n);
  if (gpu::backend() != nullptr) gpu_forms().order.reserve(n);
  if (reduces(call.plan->spec.collective)) combiner_.reserve(call);
}

GpuForms& NodeCollective::gpu_forms() {
  if (gpu_forms_ == nullptr) gpu_forms_ = std::make_unique<GpuForms>();
  return *gpu_forms_;
}

// Finds the buffers that are on GPUs, and marks the earlier work in their streams if other members may reach them.
void NodeCollective::find_gpus(bool asks_for_addresses) {
  if (gpu_forms_ != nullptr) {
    gpu_forms_->order.stop();
    gpu_forms_->copies.stop();
  }
  if (gpu::backend() == nullptr || call_.call->pieces != nullptr || call_.room->gpus().is_host_only()) return;
  locate_buffers(call_);
  if (!reaches_gpus(*call_.room) || !has_known_places(call_.collective()) || call_.members() == 1) return;
  if (call_.call->stream || (asks_for_addresses && call_.devices.has_any())) gpu_forms().order.begin(call_);
}

void NodeCollective::begin_by_host() {
  form_ = nullptr;
  if (gpu_forms_ == nullptr || gpu_forms_->order.is_caught_up()) begin_by_slots();
}

bool NodeCollective::begin_stream() {
  if (PairwiseForm::fits(call_)) {
    begins_anew_ = begins_anew_ || has_known_places(call_.collective());
    pairwise_.begin(call_);
    form_ = &pairwise_;
  } else if (ChainForm::fits(call_)) {
    chain_.begin(call_);
    form_ = &chain_;
  } else {
    return false;
  }
  return true;
}

void NodeCollective::begin_by_slots() {
  if (begin_stream()) return;
  SlotCopies* copies = nullptr;
  if (call_.devices.has_any()) {
    copies = &gpu_forms().copies;
    copies->begin(call_);
  }
  const bool is_shared = call_.collective() == Collective::all_reduce || call_.collective() == Collective::reduce;
  if (is_shared && call_.common().bytes >= call_.tuning.two_phase_from && call_.members() > 1) {
    two_phase_.begin(call_, copies);
    form_ = &two_phase_;
  } else if (SmallAllReduceForm::fits(call_)) {
    small_all_reduce_.begin(call_);
    form_ = &small_all_reduce_;
  } else {
    one_phase_.begin(call_, copies);
    form_ = &one_phase_;
  }
}

// Runs when all members know that they can reach all buffers. All decide alike about the last question: if the way
// over GPUs is shorter than slots.
void NodeCollective::begin_direct() {
  Room& room = *call_.room;
  if (!peers_.concerns_gpus) {
    room.gpus().set_events_shared(false);
    direct_.begin(call_, peers_, *form_);
    form_ = &direct_;
    return;
  }
  Gpus* const gpus = room.gpus().shared();
  const bool by_events = peers_.all_have_events() && (gpus == nullptr || gpus->agreement().can_use_events());
  // A call in a stream uses the GPUs even if the host's way is shorter. By that way the host would wait for the stream,
  // and the next call could not be queued behind this one before its end. The measured costs do not include that.
  if (!(by_events && call_.plan().in_stream) && !is_faster_on_gpus(call_, peers_)) {
    room.gpus().set_events_shared(false);
    return begin_by_host();
  }
  if (peers_.is_mapped) {
    map_buffers(call_, peers_, false);
    gpus->mappings().unmap_freed(call_.call->stream.has_value());
  }
  GpuForms& forms = gpu_forms();
  if (by_events) {
    forms.by_events.begin(call_, peers_, forms.order, *form_);
    form_ = &forms.by_events;
  } else {
    room.gpus().set_events_shared(false);
    forms.direct.begin(call_, peers_, forms.order, *form_);
    form_ = &forms.direct;
  }
}

// Goes on from a form that has ended. Only the forms that ask for addresses have another one behind them.
void NodeCollective::begin_next_form() {
  const bool has_asked = form_ == &addresses_;
  const bool has_tried = gpu_forms_ != nullptr && form_ == &gpu_forms_->mapping_test;
  if (!has_asked && !has_tried) {
    is_done_ = true;
  } else if (has_asked && addresses_.outcome() == AddressOutcome::mapping_test) {
    gpu_forms().mapping_test.begin(call_, peers_, gpu_forms().order, *form_);
    form_ = &gpu_forms().mapping_test;
  } else if (has_asked ? addresses_.outcome() == AddressOutcome::direct : gpu_forms_->mapping_test.can_map()) {
    begin_direct();
  } else {
    call_.room->gpus().set_events_shared(false);
    begin_by_host();
  }
}

bool NodeCollective::advance(PollLimits poll_limits) {
  bool moved = false;
  while (!is_done_) {
    if (form_ == nullptr) {
      if (!gpu_forms_->order.is_caught_up()) return moved;
      begin_by_slots();
    } else {
      moved |= form_->advance(poll_limits);
      if (!form_->is_done()) return moved;
      begin_next_form();
    }
    moved = true;
  }
  return moved;
}

}  // namespace lockstep::node
