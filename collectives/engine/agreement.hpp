// SPDX-License-Identifier: Apache-2.0
// Knows which members compare whether all are in the same call, and what was agreed on before. Each member tells the
// members 1, 2, 4, ... after it and hears those 1, 2, 4, ... before it: some member sees every difference, at the cost
// of log2(size) control messages, once for every kind of call. It holds values only; the engine sends and receives.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

#include "collectives/engine/control_message.hpp"

namespace lockstep {

class Agreement {
 public:
  Agreement(int rank, int size);

  // Whether a call of this kind was seen before; it has been from now on. Members that make the same calls always get
  // the same answers.
  bool first_use(std::uint64_t kind);

  // What was seen before is forgotten now and then, by all members at the same call; so often.
  std::uint64_t forgotten() const { return forgotten_; }

  const std::vector<int>& listeners() const { return listeners_; }
  // Bit k: the member 2^k before me.
  std::uint32_t everybody_asked() const { return (std::uint32_t{1} << listeners_.size()) - 1; }
  // The bit of a member; 0 for one that has nothing to tell me.
  std::uint32_t bit_of(int peer) const;
  std::vector<int> members(std::uint32_t bits) const;
  // The other way round, bit k: the member 2^k after me.
  std::vector<int> told(std::uint32_t bits) const;

  // Keeps control messages about calls that this member has not come to yet.
  void keep(int peer, CallDescription call) { early_.emplace_back(peer, std::move(call)); }
  std::vector<std::pair<int, CallDescription>> take_kept(std::uint64_t number);
  bool keeps_any() const { return !early_.empty(); }

 private:
  static constexpr std::size_t kinds_kept = std::size_t{1} << 16U;

  int rank_;
  int size_;
  std::vector<int> listeners_;
  std::unordered_set<std::uint64_t> kinds_;
  std::uint64_t forgotten_ = 0;
  std::vector<std::pair<int, CallDescription>> early_;
};

}  // namespace lockstep
