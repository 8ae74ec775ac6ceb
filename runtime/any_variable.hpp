// SPDX-License-Identifier: Apache-2.0
// Refers to a variable without naming the type of its elements. Optimizers, checkpoints and models hold these.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "runtime/any_tensor.hpp"
#include "runtime/values/tensor_view.hpp"
#include "runtime/variable_base.hpp"

namespace lockstep {

// Is one of the handles of a variable: copies refer to the same one, and keep it. Calls on a handle that was moved from
// throw Error usage.
class AnyVariable {
 public:
  template <class T>
  AnyVariable(const Variable<T>& variable);  // NOLINT(google-explicit-constructor): a variable is one
  explicit AnyVariable(std::shared_ptr<detail::VariableBase> state) : state_(std::move(state)) {}

  // Return the variable's name with its name scopes, as "dense/kernel", and its path. The path is the name, with "_1"
  // behind it for the second variable of that name in the strategy, "_2" for the third, and so on.
  const std::string& name() const { return state().rules().options().name; }
  const std::string& path() const { return state().home().identity().path; }
  DataType type() const { return state().type(); }
  const TensorShape& shape() const { return state().shape(); }
  bool trainable() const { return *state().rules().options().trainable; }
  Synchronization synchronization() const { return state().rules().options().synchronization; }
  Aggregation aggregation() const { return state().rules().options().aggregation; }
  Strategy& strategy() const { return state().home().strategy(); }
  // Describes the parts of this process.
  const VariableLayout& layout() const { return state().home().layout(); }
  // Returns the memory of a part of this process, in host or GPU memory. The variable owns it. Throws Error usage if
  // there is no such part, and in a replica for a part that is not the replica's own.
  TensorView part(std::size_t index) const;

  // Are saved() and restore() of Variable, with the elements as this machine's bytes. All processes must call them.
  std::vector<std::byte> saved(Origin origin = Origin::here()) const;
  void restore(std::span<const std::byte> bytes, Origin origin = Origin::here()) const;
  // Is Variable::check_sync().
  void check_sync(Origin origin = Origin::here()) const { state().check_all(origin); }
  // Returns the variable with the type of its elements. Throws Error usage if they are of another type.
  template <class T>
  Variable<T> as() const;

  std::string to_string() const { return state().printed(); }  // Returns TensorFlow's text of the variable.

  // True if both refer to the same variable, whatever its value.
  bool operator==(const AnyVariable& other) const { return state_ == other.state_; }

 private:
  friend class Strategy;
  friend struct std::hash<AnyVariable>;
  friend AnyTensor value_of(const AnyVariable& variable, Origin origin);
  std::size_t bytes() const { return shape().count() * size_of(type()); }
  detail::VariableBase& state() const;
  [[noreturn]] void refuse_type(DataType wanted) const;

  std::shared_ptr<detail::VariableBase> state_;
};

// Returns what Variable::read() returns. A part in the host's memory is not copied: the tensor keeps the variable, and
// changes with it.
AnyTensor value_of(const AnyVariable& variable, Origin origin = Origin::here());

inline std::ostream& operator<<(std::ostream& out, const AnyVariable& variable) { return out << variable.to_string(); }

}  // namespace lockstep

// Lets variables be keys: handles of one variable are equal.
template <>
struct std::hash<lockstep::AnyVariable> {
  std::size_t operator()(const lockstep::AnyVariable& variable) const noexcept {
    return std::hash<const void*>()(variable.state_.get());
  }
};
