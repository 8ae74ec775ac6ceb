// SPDX-License-Identifier: Apache-2.0
// Implements the parts of a variable that don't depend on its elements: its strategy, its path, the callers of its
// functions, and the agreement of all replicas.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/any_tensor.hpp"
#include "runtime/strategy.hpp"
#include "runtime/variable_registry.hpp"
#include "runtime/variable_rules.hpp"

namespace lockstep {

class AnyVariable;
AnyTensor value_of(const AnyVariable& variable, Origin origin);

namespace detail {

// Compares the shapes of the first value on all processes before any of them waits for data. Null means that this
// process could not make its value. Throws an Error on all processes if one could not, or if the shapes differ.
void agree_on_shape(Strategy& strategy, const TensorShape* mine, Origin origin);

// Tells to which strategy a variable belongs, and where its parts are. It must not be used after the strategy has
// ended; strategy() checks that.
class VariableHome {
 public:
  VariableHome(Strategy& strategy, const VariableOptions& options);

  Strategy& strategy() const;  // Throws Error usage once the strategy has ended.
  const VariableIdentity& identity() const { return identity_; }
  const VariableLayout& layout() const { return layout_; }
  // True if the variable belongs to this strategy, which exists.
  bool is_of(const Strategy& strategy) const { return !here_.expired() && strategy_ == &strategy; }
  // True if the strategy exists and runs its replicas.
  bool is_running() const;
  // True if other processes have replicas as well.
  bool is_spread() const { return size_ > static_cast<int>(layout_.part_of.size()); }
  int replicas() const { return size_; }
  bool has_first_replica() const { return first_ == 0; }

 private:
  std::weak_ptr<const Strategy*> here_;
  Strategy* strategy_;
  VariableIdentity identity_;
  VariableLayout layout_;
  int size_;
  int first_;  // Is the number of this process's first replica.
};

// Is the base of a variable's state.
class VariableBase : public std::enable_shared_from_this<VariableBase> {
 public:
  VariableBase(VariableHome home, VariableRules rules, DataType type, TensorShape shape);
  virtual ~VariableBase();
  VariableBase(const VariableBase&) = delete;
  VariableBase& operator=(const VariableBase&) = delete;

  // Return the subjects by which members compare calls about the variable, and about changes of it.
  CallSubject subject() const { return {.variable = home_.identity().number}; }
  CallSubject subject(UpdateOp how, bool of_rows) const {
    const int way = 1 + 2 * static_cast<int>(how) + (of_rows ? 1 : 0);
    return {.variable = variable_changed(home_.identity().number, static_cast<std::uint8_t>(way))};
  }
  const VariableHome& home() const { return home_; }
  const VariableRules& rules() const { return rules_; }
  DataType type() const { return type_; }
  const TensorShape& shape() const { return shape_; }
  // Returns the index of the part that a replica of this process uses.
  std::size_t part_of(int local) const { return home_.layout().part_of[static_cast<std::size_t>(local)]; }

  // Throws Error usage unless the call speaks for all replicas.
  void require_all(std::string_view call) const;
  // Throws Error usage if a value of all replicas is given in one of them.
  void refuse_in_replica(std::string_view call) const;
  // Returns the position of the caller.
  CallerContext caller_context(std::string_view call) const;
  // True if an assignment in a replica needs an agreement of all replicas. Warns once if the variable has no
  // aggregation, so that replicas change their own parts.
  bool is_agreed(const CallerContext& who, Origin origin) const;
  // Starts a call of each part's member, and waits for all.
  void run_all(const std::function<Request(Communicator&, int local)>& start, Origin origin) const;

  // Throws Error out_of_sync if the parts differ between replicas. Each part is given as bytes, with elements of
  // `element` bytes.
  void compare_parts(const std::vector<std::span<const std::byte>>& parts, std::size_t element, Origin origin) const;
  // Ends the making of the variable: all replicas agree on the shape and on replica 0's value.
  void begin(Origin origin);
  // Gives the variable to another strategy. Its replicas begin with the values of the processes that are left.
  void move_to(Strategy& strategy, Origin origin);

 private:
  friend class lockstep::AnyVariable;
  friend AnyTensor lockstep::value_of(const AnyVariable& variable, Origin origin);
  // Implement the functions of AnyVariable.
  virtual void* memory_of(std::size_t part) = 0;
  virtual void save(std::span<std::byte> to, Origin origin) = 0;
  virtual void restore_from(std::span<const std::byte> from, Origin origin) = 0;
  virtual void check_all(Origin origin) = 0;
  virtual std::string printed() = 0;
  // Returns the value that read() copies, without a copy if it is in the host's memory.
  virtual AnyTensor value(Origin origin) = 0;
  // Makes the parts of a new layout from those that are there.
  virtual void lay_out(const VariableLayout& layout) = 0;
  // Copies replica 0's value to all replicas.
  virtual void spread(Origin origin) = 0;
  void throw_difference(const std::vector<std::span<const std::byte>>& parts, std::size_t element,
                        const std::vector<std::uint64_t>& digests, Origin origin) const;

  VariableHome home_;
  VariableRules rules_;
  DataType type_;
  TensorShape shape_;
  mutable std::atomic<bool> warned_{false};
};

}  // namespace detail
}  // namespace lockstep
