// SPDX-License-Identifier: Apache-2.0
// Compares the thresholds in use with their neighbours while a program runs. A trial takes one kind of call, and one
// threshold near whose switch point the call lies. Once in some thousand calls it times eight calls of that kind by the
// value in use, and eight by the neighbour. After ten such pairs each member writes its vote into the room's memory.
// All read the votes two rings of lines later, when the room's ring proves that all have written theirs. A value that
// is clearly behind in two trials is given up.
//
// Members must take the same form in each call. So everything here depends on the calls' turns, their specs and the
// votes only, which are the same on all members. No result changes: thresholds change no bit.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>

#include "collectives/node/room.hpp"
#include "collectives/plan.hpp"

namespace lockstep::node {

// Counts the pairs of calls that a trial compares; a guess.
inline constexpr std::size_t trial_pairs = 10;

// Is a threshold with another value.
struct Neighbour {
  std::size_t field = 0;  // index in tuning_fields()
  std::size_t value = 0;
  bool operator==(const Neighbour&) const = default;
};

// Lists the values next to those in use that would change the way of this call.
struct Neighbours {
  static constexpr std::size_t most = 8;
  std::array<Neighbour, most> all = {};
  std::size_t count = 0;
};
// Returns them. `slot_bytes` is the room's.
Neighbours neighbours_of(const Tuning& tuning, const Spec& spec, int members, std::size_t slot_bytes);

// Is one member's verdict on a trial.
struct TrialVote {
  std::uint32_t wins = 0;          // pairs in which the neighbour was faster
  std::int32_t gain_permille = 0;  // logarithm of the value's time over the neighbour's, in thousandths; the median

  static TrialVote of(std::span<const double> seconds_in_use, std::span<const double> seconds_of_neighbour);
  std::uint64_t pack() const { return std::uint64_t{wins} << 32U | static_cast<std::uint32_t>(gain_permille); }
  static TrialVote unpack(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32U),
            static_cast<std::int32_t>(static_cast<std::uint32_t>(word & 0xffffffffU))};
  }
};
// Returns true if the value in use is clearly behind by the votes of all members: by a tenth, and in most pairs.
bool is_clearly_behind(std::span<const TrialVote> votes, std::size_t pairs);

// Is a kind of call.
struct CallKind {
  Collective collective = Collective::barrier;
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  std::size_t count = 0;
  std::size_t element_bytes = 0;
  static CallKind of(const Spec& spec) { return {spec.collective, spec.type, spec.op, spec.count, spec.element_bytes}; }
  bool operator==(const CallKind&) const = default;
};

// Holds the trial that is open.
struct OpenTrial {
  CallKind kind = {};
  Neighbour neighbour = {};
  Tuning tuning = {};     // with the neighbour's value
  std::size_t calls = 0;  // of the pair under way
  std::size_t pairs = 0;
  std::size_t skips = 0;        // in a row
  std::size_t times_ahead = 0;  // trials in which the neighbour was ahead
  StepNumber last_step = 0;     // the room's last step when the last pair was done
  bool knows_last_step = false;
  std::array<std::array<double, trial_pairs>, 2> seconds = {};  // in use, and the neighbour's
};

// Runs trials in the calls of one room. One member's thread at a time uses it.
class TuningTrial {
 public:
  using Clock = std::chrono::steady_clock;

  // A null room means that no call asks. The room must outlive it.
  explicit TuningTrial(Room* room) : room_(room) {}

  // Returns the turn from which each call must ask tuning_for(). Until then the room's tuning holds.
  std::uint64_t next_turn() const { return next_turn_; }
  // Returns the tuning of the next call in the room. Must be called in the order of turns.
  const Tuning& tuning_for(std::uint64_t turn, const Spec& spec) {
    return turn < next_turn_ ? room_->tuning() : choose(turn, spec);
  }
  // True if the call that asked last is timed; its end must then be told.
  bool is_timing() const { return is_timing_; }
  void end_call() { end_call(std::chrono::duration<double>(Clock::now() - begin_).count()); }
  // Serves tests: takes the call's time instead of measuring it.
  void end_call(double seconds);

 private:
  static constexpr std::uint64_t first_turn = 4096;  // a guess: short jobs have no trials
  // Says what the trial waits for.
  enum class Phase : std::uint8_t { search, sample, vote };
  const Tuning& choose(std::uint64_t turn, const Spec& spec);
  void search(const Spec& spec);
  void skip(std::uint64_t turn);
  const Tuning& sample(std::uint64_t turn);
  void open(const Spec& spec, const Neighbour& neighbour);
  void count_votes(std::uint64_t turn);
  void close(std::uint64_t turn, std::uint64_t pause);

  Room* room_;
  std::uint64_t next_turn_ = first_turn;
  Clock::time_point begin_ = {};
  bool is_timing_ = false;
  bool is_timing_neighbour_ = false;
  Phase phase_ = Phase::search;
  OpenTrial trial_;
  std::uint32_t number_ = 0;          // of the trial
  std::uint32_t misses_ = 0;          // calls in a row that did not fit
  std::uint64_t pause_ = first_turn;  // turns after a trial without a gain
};

}  // namespace lockstep::node
