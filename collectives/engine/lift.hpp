// SPDX-License-Identifier: Apache-2.0
// Data in a GPU's memory, of a call whose rounds work on the host's. It goes in pieces: each comes from the GPU shortly
// before a round needs it, and a piece of the result goes there when no round will write it any more, while the rounds
// go on with the others. Each member does that by itself: what rounds need, and when, follows from its own schedule.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "collectives/gpu/ways.hpp"
#include "collectives/node/call.hpp"

namespace lockstep {

// What of a call lies where, the same in all its starts. The call's own input and output are the host's memory that
// stands for it.
struct Lifting {
  static constexpr int nowhere = gpu::Where::host;
  int input_device = nowhere;  // nowhere: the input, or the output, is the host's
  std::byte* input = nullptr;
  int output_device = nowhere;
  std::byte* output = nullptr;
  bool is_one_memory = false;  // input and output
  std::size_t piece = 0;       // bytes
  bool fetches() const { return input_device != nowhere; }
  bool brings() const { return output_device != nowhere; }
};

// From where on copies are worth their beginnings, as measured on that GPU.
std::size_t lifted_piece(const gpu::Costs& costs, std::size_t element_bytes);

// One call's data on their way.
class Lift {
 public:
  // Of a call that has a Lifting; begins the first copies. The ways and the call stay until it is over.
  void begin(gpu::Ways& ways, const Call& call);
  bool is_on() const { return call_ != nullptr; }
  void end() { call_ = nullptr; }
  bool fetches() const { return is_on() && lifting().fetches(); }
  bool brings() const { return is_on() && lifting().brings(); }

  // As far as it goes; whether anything moved.
  bool advance();
  // Whether all is here that the rounds use in this lap, of the segment that begins at that element. (What they write
  // has to be here as well where it is one memory: what comes would lie on it.)
  bool is_ready(const Round& round, int lap, std::size_t first) const;
  // They have used it.
  void done(const Round& round, int lap, std::size_t first);
  // All of the result is where it belongs.
  bool has_landed() const { return going_.empty(); }
  // After a failure. False: copies have not ended soon, so that what they may touch has to stay.
  bool abandon() noexcept;

 private:
  enum class State : std::uint8_t { away, coming, here };
  struct Coming {
    std::uint32_t piece;
    std::shared_ptr<gpu::Mark> mark;
  };
  const Lifting& lifting() const { return *call_->lifting; }
  const Plan& plan() const { return *call_->plan; }
  bool divides() const;
  bool multiplies() const;
  bool is_as_given() const { return lifting().is_one_memory && !multiplies(); }
  std::size_t bytes_of(std::size_t count) const { return count * plan().spec.element_bytes; }
  void look_through();
  void top_up();
  void arrived(std::uint32_t piece);
  void leave(std::uint32_t piece);
  template <class Use>
  void each_piece(const Slice& slice, std::size_t first, const Use& use) const;

  gpu::Ways* ways_ = nullptr;
  const Call* call_ = nullptr;
  std::shared_ptr<const Plan> looked_through_;
  std::size_t looked_by_ = 0;  // with pieces of so many bytes, as they are for a Lifting that is alike
  bool looked_at_one_memory_ = false;
  std::vector<std::uint32_t> order_;  // of the input's pieces, as rounds need them
  std::vector<std::uint32_t> uses_;   // of the output's: slices of all rounds that write there
  std::vector<State> input_;
  std::vector<std::uint32_t> left_;
  std::size_t next_ = 0;  // to come, in that order
  std::deque<Coming> coming_;
  std::deque<std::shared_ptr<gpu::Mark>> going_;
};

}  // namespace lockstep
