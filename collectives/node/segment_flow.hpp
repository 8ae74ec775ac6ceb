// SPDX-License-Identifier: Apache-2.0
// Copies the segments of a call among the members of a room as they come, without a step for each of them.
//
// Each member gets one block of every segment from another node, and copies the other blocks from the outputs of its
// node's members. A counter of each member in the room holds the number of segments of which its block has come. Two
// steps are left. In the first one members announce their outputs, and decide alike if all can be reached. In the last
// one they tell that they read no other output any more.
#pragma once

#include "collectives/node/address_form.hpp"
#include "collectives/node/peer_buffers.hpp"

namespace lockstep::node {

// Is the step after a flow. A member publishes it when it has copied everything.
class FlowEndForm final : public InNodeForm {
 public:
  // Goes on with the steps of `before`, which found the outputs.
  void begin(CallContext& call, const InNodeForm& before);
  // Allows the step, since this member has copied everything.
  void set_complete() { is_complete_ = true; }
  bool is_complete() const { return is_complete_; }

 private:
  bool fill() override { return is_complete_; }
  void end_step() override;

  bool is_complete_ = false;
};

// Runs one member's part of a flow. One object serves many calls, one after another. One thread at a time may use it.
// It owns no buffer of the caller.
class SegmentFlow {
 public:
  // Names the states of a call. It is `waiting` for its turn in the room, then `asking` for the outputs. If it is
  // `refused`, each segment takes steps of its own.
  enum class State : std::uint8_t { waiting, asking, flowing, refused, ended };

  // Prepares a call. It begins at its turn in the room.
  void prepare() { state_ = State::waiting; }
  // Begins a call. The room, the call and its output stay alive and unchanged until the end or a failure. The plan's
  // input and output are one buffer, the whole output. If `is_reachable` is false, other members must not read it, and
  // all refuse. `call_tag` and `address_queries`: see NodeCollective::begin().
  void begin(Room& room, const Call& call, bool is_reachable, std::uint32_t call_tag, AddressQueries address_queries);
  // Advances the first step, and the last one after end(). Returns true if anything moved.
  bool advance(PollLimits poll_limits);
  State state() const { return state_; }
  bool is_flowing() const { return state_ == State::flowing; }

  // Tells that this member's blocks of the first segments are in its output. The number never falls.
  void set_ready(int segments);
  // Returns true if a member's block of the segment is in its output.
  bool is_ready(int member, int segment) const;
  // Copies bytes from the same place in a member's output, where they must be ready. Returns false if a member has
  // given up, so that nothing may be touched. Throws Error peer_failed if a process that it reads from is gone.
  bool copy(int member, std::size_t offset, std::size_t bytes);
  // Ends the flow. This member has copied everything.
  void end() { end_form_.set_complete(); }
  bool has_ended() const { return state_ == State::ended; }

  // Return the members that this one waits for in a step, and those of them that are in another call.
  IndexSet missing() const;
  IndexSet in_other_call() const;

 private:
  // Returns the form of the step that this member is in; null between the steps and outside of a call.
  const InNodeForm* form_in_step() const;

  CallContext context_;
  PeerBuffers peers_;
  AddressForm addresses_;
  FlowEndForm end_form_;
  int ready_ = 0;
  State state_ = State::refused;
};

}  // namespace lockstep::node
