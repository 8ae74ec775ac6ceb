// SPDX-License-Identifier: Apache-2.0
// Implements the form of large scans: a chain over the members. A member takes the sum of all before it from its
// predecessor, chunk by chunk, adds its own input and passes the sum on. Each input is read once, where OnePhaseForm
// has every member read the inputs of all before it. Chunks go through the rings and counters of PairwiseForm, so all
// members of the chain work at once.
#pragma once

#include "collectives/node/in_node_form.hpp"

namespace lockstep::node {

// Runs scan and exscan on the host's data.
class ChainForm final : public InNodeForm {
 public:
  // True if the call is done in this form. It is equal on all members. The bits of the result are those of
  // OnePhaseForm, so calls that combine in another order, or round at the end only, are left to that.
  static bool fits(const CallContext& call);
  // Begins a call, also one that was made before.
  void begin(CallContext& call);
  IndexSet missing() const override;

 private:
  bool fill() override;
  bool has_collected(PollLimits& poll_limits) override;
  void end_step() override;
  // Passes one chunk on if it is there, and there is room for it. Returns true after the last one.
  bool move_chunk();
  void combine(const std::byte* before, std::byte* after, std::size_t bytes);
  bool is_first() const { return call().me() == 0; }
  bool is_last() const { return call().me() + 1 == call().members(); }
  bool has_input() const;
  bool has_room() const;
  std::byte* ring_place(int member) const;

  std::size_t chunk_ = 0;  // bytes
  std::size_t done_ = 0;   // bytes
  std::size_t turn_ = 0;   // the number of the next chunk
};

}  // namespace lockstep::node
