// SPDX-License-Identifier: Apache-2.0
// Copies buffers in a GPU's memory through slots, in a pipeline of each member's own. The data for the next step travel
// into the slot while this step's are worked on, and the last step's results travel to the output. The room's rule
// holds for copies too: before a member publishes a step, all copies that it began one step earlier have left the
// slots.
#pragma once

#include <memory>
#include <vector>

#include "collectives/gpu/device_backend.hpp"
#include "collectives/node/member_buffers.hpp"

namespace lockstep::node {

// Copies the input from a GPU into this member's slots, one step after another.
class SlotDownload {
 public:
  void begin(const CallContext& call);
  // Returns true, once, for each step that must begin its copies now.
  bool begins(std::size_t step);
  // Begins to copy a range of the input. mark() ends the copies of a step.
  void copy(std::byte* to, std::size_t offset, std::size_t bytes);
  void mark();
  // True if the last step's data have arrived, and are multiplied by the member's factor if the call has one.
  bool has_arrived();

 private:
  struct CopiedRange {
    std::byte* data;
    std::size_t bytes;
  };

  const CallContext* call_ = nullptr;
  bool scales_ = false;
  std::size_t begun_ = 0;                  // steps with copies under way or done
  std::shared_ptr<gpu::StreamMark> mark_;  // of the last copies; null: they have arrived
  std::vector<CopiedRange> copied_;        // for the last step
};

// Copies results from slots, or from memory of its own, to an output on a GPU.
class SlotUpload final : public OutputWriter {
 public:
  void begin(const CallContext& call);
  // Makes memory for results of at most so many bytes, which are combined for this member alone.
  void reserve_results(std::size_t bytes);
  void write(std::size_t offset, const std::byte* from, std::size_t bytes) override;
  std::byte* place_of_result(std::size_t offset, std::size_t bytes) override;
  // Ends the copies of a step.
  void mark();
  // True if another step may be published: earlier copies have left the slots.
  bool leaves_room() { return has_arrived(results_ == nullptr ? 0 : 1); }
  // True if all steps' copies have arrived, but for the last `but` ones.
  bool has_arrived(std::size_t but);
  std::shared_ptr<std::byte> take_results() { return std::move(results_); }

 private:
  // One result is combined while the last one goes to the GPU, and the one before that may still be under way.
  static constexpr std::size_t results_at_once = 3;

  const CallContext* call_ = nullptr;
  bool is_unmarked_ = false;                             // a copy has begun and has no mark yet
  std::vector<std::shared_ptr<gpu::StreamMark>> marks_;  // one for each step, until its copies have arrived
  std::shared_ptr<std::byte> results_;                   // a ring; null: results go from the slots
  std::size_t result_bytes_ = 0;
  std::size_t next_ = 0;  // in the ring
};

// Holds both for one call.
class SlotCopies {
 public:
  // Prepares the copies of a call with a buffer on a GPU.
  void begin(CallContext& call);
  // Tells that a call has none.
  void stop() { call_ = nullptr; }
  bool is_on() const { return call_ != nullptr; }
  // Return the copies from and to the GPU; null if that buffer is the host's.
  SlotDownload* download() { return call_ != nullptr && call_->devices.input >= 0 ? &download_ : nullptr; }
  SlotUpload* upload() { return call_ != nullptr && call_->devices.output >= 0 ? &upload_ : nullptr; }
  // Replaces the input on a GPU by a copy on the host, which stays until has_ended().
  void keep_input();
  // True if all copies to the GPU have arrived; then frees the memory that they needed.
  bool has_ended();
  // Gives the copies up. Returns false if they did not end within a second; their memory is then kept for ever.
  bool abandon() noexcept;

 private:
  bool has_drained() const;

  CallContext* call_ = nullptr;
  SlotDownload download_;
  SlotUpload upload_;
  std::shared_ptr<std::byte> kept_input_;
};

}  // namespace lockstep::node
