// SPDX-License-Identifier: Apache-2.0
// Declares the interface of the forms in which members of a room run a call, and the sequence of steps that all of them
// have. In a step a member fills a line or slot with data, publishes the step, and collects the steps of the members
// that it needs.
#pragma once

#include <sched.h>

#include "collectives/node/call_context.hpp"
#include "topology/base/index_set.hpp"

namespace lockstep::node {

// Bounds the bytes that a member copies in a step of a round before it looks for messages again: about 10 us at 7 GB/s,
// a guess.
inline constexpr std::size_t most_of_turn = std::size_t{64} << 10U;

// Limits how long advance() looks for a missing step: first `spins` looks in a row, then `yields` looks, each after
// a yield to other threads.
struct PollLimits {
  unsigned spins = 0;
  unsigned yields = 0;
};

// Looks until `there` is true or no look is left.
template <class There>
bool poll(PollLimits& poll_limits, There&& there) {
  while (!there()) {
    if (poll_limits.spins > 0) {
      --poll_limits.spins;
      relax();
    } else if (poll_limits.yields > 0) {
      --poll_limits.yields;
      ::sched_yield();
    } else {
      return false;
    }
  }
  return true;
}

// Selects the members that must have published their step before this one reads.
enum class InputNeed : std::uint8_t { none, all, root, lower };

// Runs one member's part of a call in one form. One object serves many calls, one after another. It owns no buffer of
// the caller. No function blocks.
class InNodeForm {
 public:
  InNodeForm() = default;
  virtual ~InNodeForm() = default;
  InNodeForm(const InNodeForm&) = delete;
  InNodeForm& operator=(const InNodeForm&) = delete;

  // Advances the form until it is done or waits longer than these looks. Returns true if anything moved.
  bool advance(PollLimits& poll_limits);
  bool is_done() const { return phase_ == FormPhase::done; }
  // Returns the members that this one waits for; empty if it waits for none.
  virtual IndexSet missing() const;
  // Returns those of them that have published this step in another call.
  IndexSet in_other_call() const;
  // True if the form waits for copies between a GPU and the slots.
  virtual bool waits_for_copies() const { return false; }
  // Return the number of the current step from 0, and the number of steps that is known to be needed so far.
  std::size_t step() const { return step_; }
  std::size_t steps() const { return steps_; }
  // Returns the room's number of step 0.
  StepNumber first() const { return first_; }

 protected:
  // Names the phases of a step, and of the end.
  //   `filling`     The member waits for a free line or slot, and writes its data there.
  //   `arriving`    The data come from a GPU; then the member publishes the step.
  //   `collecting`  It waits for the steps of the members that it needs.
  //   `ending`      GPUs end the work that was begun there.
  enum class FormPhase : std::uint8_t { filling, arriving, collecting, ending, done };

  // Begins a call at a step. The context must outlive it.
  void begin_steps(CallContext& call, StepNumber first, std::size_t step) {
    call_ = &call;
    first_ = first;
    step_ = step;
    collected_ = 0;
    phase_ = FormPhase::filling;
  }

  // Writes this member's data of the step. Returns false if it must wait with that, or go on later.
  virtual bool fill() = 0;
  // Tells that fill() has done a part of its work.
  void set_worked() { has_worked_ = true; }
  // True if all data of the step have arrived in their place.
  virtual bool is_filled() { return true; }
  // Works between publishing a step and waiting for it, and while it waits.
  virtual void after_publishing() {}
  virtual void while_waiting() {}
  // Looks for the steps of the members that this one needs. Returns true if all are there.
  virtual bool has_collected(PollLimits& poll_limits) { return has_all_steps(poll_limits); }
  // Uses the collected data, and sets the phase that follows.
  virtual void end_step() = 0;
  // True if nothing is under way on a GPU any more.
  virtual bool has_ended() { return true; }

  bool has_all_steps(PollLimits& poll_limits) {
    Room& room = *call_->room;
    for (; collected_ < room.size(); ++collected_) {
      if (needs(collected_) &&
          !poll(poll_limits, [&] { return room.ring().has_published_in(collected_, at_step(step_), call_->call_tag); }))
        return false;
    }
    if (needs_ == InputNeed::all) room.ring().note_reached_by_all(at_step(step_));
    return true;
  }
  // Goes to the next step. Returns false if there is none.
  bool next_step() {
    phase_ = FormPhase::filling;
    return ++step_ < steps_;
  }
  // Records that has_collected() moved data although it has not collected all.
  void note_moved() { has_moved_ = true; }
  void set_needs(InputNeed needs) { needs_ = needs; }
  void set_steps(std::size_t steps) { steps_ = steps; }
  void set_storage(StepStorage storage) { storage_ = storage; }
  void set_phase(FormPhase phase) { phase_ = phase; }
  FormPhase phase() const { return phase_; }
  StepStorage storage() const { return storage_; }
  StepNumber at_step(std::size_t step) const { return first_ + static_cast<StepNumber>(step); }
  CallContext& call() const { return *call_; }
  // Publishes the step that is filled.
  void publish() {
    call_->room->ring().publish(call_->call_tag);
    phase_ = FormPhase::collecting;
    collected_ = 0;
  }

 private:
  bool needs(int member) const {
    if (member == call_->me()) return false;
    if (needs_ == InputNeed::all) return true;
    return (needs_ == InputNeed::root && member == call_->spec().root) ||
           (needs_ == InputNeed::lower && member < call_->me());
  }

  CallContext* call_ = nullptr;
  StepNumber first_ = 0;  // the room's number for step 0 of this call
  std::size_t step_ = 0;
  std::size_t steps_ = 1;
  int collected_ = 0;  // members that were seen in this step
  bool has_worked_ = false;
  FormPhase phase_ = FormPhase::done;
  bool has_moved_ = false;
  InputNeed needs_ = InputNeed::all;
  StepStorage storage_ = StepStorage::line;  // of the steps' data
};

}  // namespace lockstep::node
