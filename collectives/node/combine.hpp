// SPDX-License-Identifier: Apache-2.0
// Combines the contributions of several members into one result. By default one pass goes from left to right. The
// reproducible order and users' functions combine by the balanced tree over the members; avg then divides the sum. The
// bits of an element follow from its contributions alone: neither its address nor the division of the work changes
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/node/call.hpp"

namespace lockstep::node {

// Returns the first address at or after `memory` that begins a cache line of 64 bytes.
inline std::byte* aligned(std::byte* memory) {
  return memory + (64 - reinterpret_cast<std::uintptr_t>(memory) % 64) % 64;
}

// Reduces the contributions of a call's members. One thread at a time may use it; the memory for intermediate results
// is its own and is kept from call to call.
class Combiner {
 public:
  // Allocates the memory that the call's reduction needs, so that set() allocates none. Keeps no reference to the call.
  // Throws Error internal if there is no kernel for the operation and the type.
  void reserve(const Call& call);
  // Prepares for combine(). The caller keeps `call` alive and unchanged until its last combine(). Throws as reserve()
  // does.
  void set(const Call& call);
  // Combines `count` elements of each of the `number` sources, which are in the order of the members, into `target`.
  // The target may be exactly one of the sources, and must not overlap one in any other way.
  void combine(void* target, const void* const* sources, int number, std::size_t count) {
    if (is_plain_ && number > 1) [[likely]]
      return call_->kernel->many(target, sources, number, count);
    combine_otherwise(target, sources, number, count);
  }

 private:
  void combine_otherwise(void* target, const void* const* sources, int number, std::size_t count);
  const std::byte* value(const void* const* sources, int first, int last, std::size_t skip, std::size_t count,
                         std::size_t level, std::byte* target);
  void add_up(void* target, const void* const* sources, int number, std::size_t count);
  void two(void* target, const void* left, const void* right, std::size_t count) const;

  const Call* call_ = nullptr;
  std::size_t element_ = 1;
  bool by_tree_ = false;
  bool divides_ = false;
  bool is_plain_ = false;  // one pass of a kernel is all
  std::size_t block_ = 0;  // elements that are combined at a time, which stay in the first cache
  std::vector<std::byte> memory_;
  std::byte* scratch_ = nullptr;
};

}  // namespace lockstep::node
