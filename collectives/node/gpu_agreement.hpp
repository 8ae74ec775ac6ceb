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
  bool can_map() const { return memory_ != Capability::unavailable; }
  // True after all members have mapped each other's memory once.
  bool has_mapped() const { return memory_ == Capability::available; }
  // Records that all members can map, and the costs on which they agreed.
  void set_costs(const gpu::DeviceCosts& costs) {
    costs_ = costs;
    memory_ = Capability::available;
  }
  // Records that some member cannot map.
  void refuse() { memory_ = Capability::unavailable; }
  // Returns the measured costs, the same on all members; zeros until set_costs().
  const gpu::DeviceCosts& costs() const { return costs_; }
  // True if a call found data on a GPU and still went by the host, so that no mapping has been tried.
  bool was_left_untested() const { return was_left_untested_; }
  void leave_untested() { was_left_untested_ = was_left_untested_ || !has_mapped(); }
  // True if members have tried to open each other's events, and if all succeeded. With events the GPUs wait for each
  // other; without them the hosts keep the order.
  bool has_tested_events() const { return events_ != Capability::untested; }
  bool can_use_events() const { return events_ == Capability::available; }
  void set_events_work(bool all_could) { events_ = all_could ? Capability::available : Capability::unavailable; }

 private:
  enum class Capability : std::uint8_t { untested, available, unavailable };

  Capability memory_ = Capability::untested;
  Capability events_ = Capability::untested;
  bool was_left_untested_ = false;
  gpu::DeviceCosts costs_;
};

// Remembers if questions for the location of buffers found one on a GPU.
class GpuQueryHistory {
 public:
  // False if the last few questions found none.
  bool should_query_often() const { return fruitless_queries_ < max_fruitless_queries; }
  // True if one of the last few questions by calls of this kind found one. Between such calls a program may make many
  // others, so each kind is counted on its own.
  bool is_likely_on_gpu(std::size_t kind) const { return queries_left_[kind % kinds] > 0; }
  // Records the answer to one question by a call of this kind.
  void count_query(bool found, std::size_t kind) {
    fruitless_queries_ = found ? 0 : fruitless_queries_ + 1;
    std::uint8_t& times = queries_left_[kind % kinds];
    times = static_cast<std::uint8_t>(found ? max_fruitless_queries : std::max(times - 1, 0));
  }

 private:
  static constexpr int max_fruitless_queries = 8;  // calls without a buffer on a GPU; a guess
  // Counts kinds of calls by their remainder, so that some kinds share a counter.
  static constexpr std::size_t kinds = 64;

  int fruitless_queries_ = 0;
  std::array<std::uint8_t, kinds> queries_left_{};
};

}  // namespace lockstep::node
