// SPDX-License-Identifier: Apache-2.0
// Keeps the facts about GPUs on which all members of a room agree, so that they choose the way of a call alike.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "collectives/gpu/device_backend.hpp"

namespace lockstep::node {

// Knows if all members can map each other's memory and open each other's events, and the costs of work on their GPUs.
class GpuAgreement {
 public:
  // False once a member could not map another's memory. Until the first attempt members assume that they can. Between
  // two calls the answer is the same on all members.
  bool can_map() const { return memory_ != ProofState::refused; }
  // True after all members have mapped each other's memory once.
  bool has_mapped() const { return memory_ == ProofState::proven; }
  // Records that all members can map, and the costs on which they agreed.
  void set_costs(const gpu::DeviceCosts& costs) {
    costs_ = costs;
    memory_ = ProofState::proven;
  }
  // Records that some member cannot map.
  void refuse() { memory_ = ProofState::refused; }
  // Returns the measured costs, the same on all members; zeros until conclude().
  const gpu::DeviceCosts& costs() const { return costs_; }
  // True if a call found data on a GPU and still went by the host, so that no mapping has been tried.
  bool was_left_untested() const { return was_left_untested_; }
  void leave_untested() { was_left_untested_ = was_left_untested_ || !has_mapped(); }
  // True if members have tried to open each other's events, and if all succeeded. With events the GPUs wait for each
  // other; without them the hosts keep the order.
  bool has_tested_events() const { return events_ != ProofState::untried; }
  bool can_use_events() const { return events_ == ProofState::proven; }
  void set_events_work(bool all_could) { events_ = all_could ? ProofState::proven : ProofState::refused; }

 private:
  enum class ProofState : std::uint8_t { untried, proven, refused };

  ProofState memory_ = ProofState::untried;
  ProofState events_ = ProofState::untried;
  bool was_left_untested_ = false;
  gpu::DeviceCosts costs_;
};

// Remembers if questions for the location of buffers found one on a GPU.
class GpuQueryHistory {
 public:
  // False if the last few questions found none.
  bool should_query_often() const { return in_vain_ < most_in_vain; }
  // True if one of the last few questions by calls of this kind found one. Between such calls a program may make many
  // others, so each kind is counted on its own.
  bool is_likely_on_gpu(std::size_t kind) const { return still_asked_[kind % kinds] > 0; }
  // Records the answer to one question by a call of this kind.
  void note(bool found, std::size_t kind) {
    in_vain_ = found ? 0 : in_vain_ + 1;
    std::uint8_t& times = still_asked_[kind % kinds];
    times = static_cast<std::uint8_t>(found ? most_in_vain : std::max(times - 1, 0));
  }

 private:
  static constexpr int most_in_vain = 8;  // calls without a buffer on a GPU; a guess
  // Counts kinds of calls by their remainder, so that some kinds share a counter.
  static constexpr std::size_t kinds = 64;

  int in_vain_ = 0;
  std::array<std::uint8_t, kinds> still_asked_{};
};

}  // namespace lockstep::node
