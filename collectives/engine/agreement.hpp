// SPDX-License-Identifier: Apache-2.0
// Decides when members compare their calls, and keeps the comparisons that come early. Each rank sends its call to the
// ranks 1, 2, 4, ... after it. So some rank sees every difference, at the cost of log2(size) control messages for each
// kind of call. This class holds values only; the engine sends and receives.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

#include "collectives/engine/control_message.hpp"

namespace lockstep {

// Remembers which kinds of call the members have compared. It is not safe for several threads.
class Agreement {
 public:
  // Prepares for one rank of a communicator of `size` members, which is at least 1.
  Agreement(int rank, int size);

  // Returns true if this kind of call is new, and remembers it. Members that make the same calls always get the same
  // answers.
  bool first_use(std::uint64_t kind);

  // Counts how often the kinds were forgotten to bound the memory. All members forget at the same call.
  std::uint64_t times_forgotten() const { return times_forgotten_; }

  // Returns the ranks that this member sends its calls to: entry k is the member 2^k after this one, modulo the size.
  const std::vector<int>& targets() const { return targets_; }
  // Returns one bit for each member that sends its calls to this one: bit k is the member 2^k before it.
  std::uint32_t all_source_bits() const { return (std::uint32_t{1} << targets_.size()) - 1; }
  // Returns the bit of that member in all_source_bits(). Returns 0 if the member does not send its calls to this one.
  std::uint32_t bit_of(int peer) const;
  // Returns the ranks of those bits: bit k is the member 2^k before this one.
  std::vector<int> sources_of(std::uint32_t bits) const;
  // Returns the ranks of bits that run the other way: bit k is the member 2^k after this one.
  std::vector<int> targets_of(std::uint32_t bits) const;

  // Keeps a control message about a call that this member has not started yet.
  void keep(int peer, CallDescription call) { early_.emplace_back(peer, std::move(call)); }
  // Returns the kept messages about that call, each with its sender's rank, and removes them.
  std::vector<std::pair<int, CallDescription>> take_kept(std::uint64_t number);
  bool keeps_any() const { return !early_.empty(); }

 private:
  // Bounds the number of kinds kept, a guess. A program that exceeds it compares its calls again.
  static constexpr std::size_t kinds_kept = std::size_t{1} << 16U;

  int rank_;
  int size_;
  std::vector<int> targets_;
  std::unordered_set<std::uint64_t> kinds_;
  std::uint64_t times_forgotten_ = 0;
  std::vector<std::pair<int, CallDescription>> early_;
};

}  // namespace lockstep
