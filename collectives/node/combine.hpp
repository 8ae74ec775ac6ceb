// SPDX-License-Identifier: Apache-2.0
// The parts of several members become one: from left to right in one pass, or, in the reproducible order and for the
// user's own functions, by the balanced tree over the members; for avg the sum is divided. An element's bits follow
// from its parts alone, not from where it lies or how the work is shared out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/node/call.hpp"

namespace lockstep::node {

// To the next cache line.
inline std::byte* aligned(std::byte* memory) {
  return memory + (64 - reinterpret_cast<std::uintptr_t>(memory) % 64) % 64;
}

class Combiner {
 public:
  // What the call's reduction needs of memory is taken; nothing of the call is kept.
  void reserve(const Call& call);
  // The call stays where it is until the last combine().
  void set(const Call& call);
  // The target may be exactly one of the sources.
  void combine(void* target, const void* const* sources, int number, std::size_t count);

 private:
  const std::byte* value(const void* const* sources, int first, int last, std::size_t skip, std::size_t count,
                         std::size_t level, std::byte* target);
  void add_up(void* target, const void* const* sources, int number, std::size_t count);
  void two(void* target, const void* left, const void* right, std::size_t count) const;

  const Call* call_ = nullptr;
  std::size_t element_ = 1;
  bool by_tree_ = false;
  bool divides_ = false;
  std::size_t block_ = 0;  // elements at a time
  std::vector<std::byte> memory_;
  std::byte* scratch_ = nullptr;
};

}  // namespace lockstep::node
