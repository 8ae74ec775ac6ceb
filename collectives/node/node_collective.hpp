// SPDX-License-Identifier: Apache-2.0
// Runs one member's part of a collective among members that share a room, as a sequence of steps. Each step publishes
// data, waits for the others and reads their data. No function blocks; the caller calls advance() again. A class runs
// each form:
//
//   `SmallAllReduceForm`  An all_reduce in lines, which takes one step.
//   `OnePhaseForm`        Every member writes to its slot, and each member reads from there.
//   `PairwiseForm`        Every pair of members moves its block by itself: if only they know its size, or it is large.
//   `ChainForm`           In large scans, each member adds its input to its predecessor's sum and passes it on.
//   `TwoPhaseForm`        A member combines its share of a segment from all slots, and all read the shares.
//   `AddressForm`         Members announce the addresses of their buffers, and decide if they can reach them.
//   `DirectForm`          They read and write there on the host, or read in each other's processes.
//   `MappingTest`         Members try if they can map each other's memory on GPUs.
//   `GpuDirectForm`       GPUs read and write there, and the hosts keep the order.
//   `GpuEventForm`        GPUs read and write there, and wait for each other by events.
//
// Buffers on a GPU may also go by slots: streams copy each part into the member's slot, and from slots to the output.
//
// An operation owns it, so it is reused with the operation's slot. The room must outlive it.
#pragma once

#include <memory>
#include <vector>

#include "collectives/node/address_form.hpp"
#include "collectives/node/chain_form.hpp"
#include "collectives/node/combine.hpp"
#include "collectives/node/direct_form.hpp"
#include "collectives/node/gpu_forms.hpp"
#include "collectives/node/one_phase_form.hpp"
#include "collectives/node/pairwise_form.hpp"
#include "collectives/node/small_all_reduce_form.hpp"
#include "collectives/node/two_phase_form.hpp"

namespace lockstep::node {

// Chooses the form of a call, and goes from one to the next. One object serves many calls, one after another. One
// thread at a time may use it. It owns no buffer of the caller.
class NodeCollective {
 public:
  NodeCollective() = default;
  NodeCollective(const NodeCollective&) = delete;
  NodeCollective& operator=(const NodeCollective&) = delete;

  // Starts a call. The room, the call and its buffers stay alive and unchanged until is_done() or abandon(). `input`
  // replaces the call's input if that was changed on the way (scaled). `call_tag` is the same on all members.
  // `address_queries` is the room's value when the call was made; calls have one order, so all members have the same.
  // Throws Error usage if a buffer in a GPU's memory was freed meanwhile.
  void begin(Room& room, const Tuning& tuning, const Call& call, const std::byte* input, std::uint32_t call_tag,
             AddressQueries address_queries);
  // Allocates the memory that begin() would need for this call. Throws as Combiner::reserve() does.
  void reserve(const Call& call);
  // Starts the last call once more with other buffers, and advances it at once by at most these looks. The caller may
  // have changed the buffers in the Call that begin() got, and nothing else.
  void repeat(const std::byte* input, std::uint32_t call_tag, AddressQueries address_queries, PollLimits poll_limits) {
    const bool is_one_phase = form_ == &one_phase_ && one_phase_.is_repeatable();
    const bool is_short = !begins_anew_ && (is_one_phase || form_ == &small_all_reduce_);
    if (!is_short || asks_for_addresses(call_, address_queries)) [[unlikely]]
      return repeat_otherwise(input, call_tag, address_queries, poll_limits);
    set_buffers(input, call_tag);
    is_done_ = is_one_phase ? one_phase_.repeat(poll_limits) : small_all_reduce_.repeat(poll_limits);
  }
  // Advances the call until it is done or waits longer than these looks. Returns true if anything moved. Throws Error
  // mismatch if two members' counts differ, peer_failed if a process that it reads from is gone, and device if a GPU
  // fails.
  bool advance(PollLimits poll_limits);
  bool is_done() const { return is_done_; }
  // Returns the members that this one waits for; empty if it waits for none.
  IndexSet missing() const { return form_ == nullptr ? IndexSet() : form_->missing(); }
  // Returns those of them that have published this step in another call.
  IndexSet in_other_call() const { return form_ == nullptr ? IndexSet() : form_->in_other_call(); }
  // True if the call waits for copies between a GPU and the slots.
  bool waits_for_gpu() const { return form_ != nullptr && form_->waits_for_copies(); }
  // Gives the call up after a failure. Returns false if copies did not end within a second. Their memory in the room
  // and this object is then kept for ever; the caller must keep its own buffers.
  bool abandon() noexcept { return gpu_forms_ == nullptr || gpu_forms_->copies.abandon(); }
  // Return the number of steps that are done, and the number that is known to be needed so far.
  std::size_t steps_done() const { return form_ == nullptr ? 0 : form_->step(); }
  std::size_t steps() const { return form_ == nullptr ? 1 : form_->steps(); }

 private:
  void set_buffers(const std::byte* input, std::uint32_t call_tag) {
    call_.input = input;
    call_.output = static_cast<std::byte*>(call_.call->output);
    call_.call_tag = call_tag;
    is_done_ = false;
  }
  void repeat_otherwise(const std::byte* input, std::uint32_t call_tag, AddressQueries address_queries,
                        PollLimits poll_limits);
  GpuForms& gpu_forms();
  void find_gpus(bool asks_for_addresses);
  // Begins the way by the host, which first waits for earlier work in a stream; `form_` is null meanwhile.
  void begin_by_host();
  void begin_by_slots();
  // Begins a form with streams between pairs of members. Returns false if the call is not done by one.
  bool begin_stream();
  void begin_direct();
  void begin_next_form();

  CallContext call_;
  Combiner combiner_;
  std::vector<const void*> sources_;
  PeerBuffers peers_;
  SmallAllReduceForm small_all_reduce_;
  OnePhaseForm one_phase_;
  PairwiseForm pairwise_;
  ChainForm chain_;
  TwoPhaseForm two_phase_;
  AddressForm addresses_;
  DirectForm direct_;
  std::unique_ptr<GpuForms> gpu_forms_;  // null until the first call that concerns GPUs
  InNodeForm* form_ = nullptr;
  bool begins_anew_ = false;  // when it is repeated, since its members may ask for addresses then
  bool is_done_ = true;
};

}  // namespace lockstep::node
