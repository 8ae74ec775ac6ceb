// SPDX-License-Identifier: Apache-2.0
// Implements the parts of a variable that don't depend on its elements: its strategy, its number, the callers of its
// functions, and the agreement of all replicas.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/strategy.hpp"
#include "runtime/variable_rules.hpp"

namespace lockstep {

namespace detail {

// Returns the next number of a variable of the strategy, from 1. All processes get the same number, even if one fails
// to make its variable.
std::uint64_t next_variable_number(Strategy& strategy);
// Compares the shapes of the first value on all processes before any of them waits for data. Null means that this
// process could not make its value. Throws an Error on all processes if one could not, or if the shapes differ.
void agree_on_shape(Strategy& strategy, const TensorShape* mine, Origin origin);

// Is the base of a variable's state. It must not be used after its strategy has ended; calls check that.
class VariableBase {
 public:
  // Takes a number from next_variable_number().
  VariableBase(Strategy& strategy, std::uint64_t number, VariableRules rules);

  // Return the subjects by which members compare calls about the variable, and about changes of it.
  CallSubject subject() const { return {.variable = number_}; }
  CallSubject subject(UpdateOp how, bool of_rows) const {
    const int way = 1 + 2 * static_cast<int>(how) + (of_rows ? 1 : 0);
    return {.variable = variable_changed(number_, static_cast<std::uint8_t>(way))};
  }
  const VariableRules& rules() const { return rules_; }
  // Returns the number of parts in this process.
  int parts() const { return rules_.is_central() ? 1 : local_; }
  // Returns the GPU that holds a part, or gpu::MemoryLocation::host.
  int gpu_of(int part) const;
  Strategy& strategy() const;  // Throws Error usage once the strategy has ended.

  // Throws Error usage unless the call speaks for all replicas.
  void require_all(std::string_view call) const;
  // Throws Error usage if a value of all replicas is given in one of them.
  void refuse_in_replica(std::string_view call) const;
  // Returns the position of the caller.
  CallerContext caller_context(std::string_view call) const;
  // True if an assignment in a replica needs an agreement of all replicas.
  bool is_agreed(const CallerContext& who) const;
  // Starts a call of each part's member, and waits for all.
  void run_all(const std::function<Request(Communicator&, int local)>& start, Origin origin) const;
  // True if other processes have replicas as well.
  bool is_spread() const;
  int replicas() const { return size_; }
  bool has_first_replica() const { return first_ == 0; }

  // Throws Error out_of_sync if the parts differ between replicas. Each part is given as bytes, with elements of
  // `element` bytes.
  void check_sync(const std::vector<std::span<const std::byte>>& parts, std::size_t element, Origin origin) const;

 private:
  void throw_difference(const std::vector<std::span<const std::byte>>& parts, std::size_t element,
                        const std::vector<std::uint64_t>& digests, Origin origin) const;

  std::weak_ptr<const Strategy*> here_;
  Strategy* strategy_;
  std::uint64_t number_;
  VariableRules rules_;
  int local_;
  int size_;
  int first_;  // Is the number of this process's first replica.
};

}  // namespace detail
}  // namespace lockstep
