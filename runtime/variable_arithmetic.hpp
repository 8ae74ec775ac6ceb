// SPDX-License-Identifier: Apache-2.0
// Calculates with variables: in 2 * w + b each stands for the value of read(), and w -= 0.1F * g is assign_sub().
// Included by runtime/variable.hpp.
#pragma once

#include <type_traits>

#include "runtime/values/tensor_arithmetic.hpp"
#include "runtime/variable.hpp"

namespace lockstep {
namespace detail {

template <class T>
struct Operand<Variable<T>> {
  using Element = T;
  static Tensor<T> value(const Variable<T>& variable) { return variable.read(); }
};

// Holds the right side of w += x, and the line of the program.
template <class T>
class VariableChange {
 public:
  template <class X>
  VariableChange(const X& by, Origin origin = Origin::here())  // NOLINT(google-explicit-constructor): x is one
      : origin_(origin) {
    constexpr bool is_operand = TensorLike<X> || Number<X>;
    static_assert(
        is_operand,
        "lockstep: a variable is changed by a tensor, a variable or a number; reduce the replicas' values first");
    if constexpr (is_operand && check_operands<T, Tensor<T>, X>()) {
      decltype(auto) value = operand_value<T>(by);
      by_ = Tensor<T>(value.shape(), std::span<const T>(value.data(), value.size()));
    }
  }

  // Returns the tensor in the shape of a variable. Throws Error usage if it cannot be repeated to that shape.
  Tensor<T> in_shape(const TensorShape& shape, const char* symbol) const {
    if (by_.shape() == shape) return by_;
    Tensor<T> whole(shape);
    check_in_place(shape, BroadcastLines(shape, by_.shape(), symbol).shape(), symbol);
    return whole += by_;
  }
  Origin origin() const { return origin_; }

 private:
  Tensor<T> by_;
  Origin origin_;
};

}  // namespace detail

// Are assign_add() and assign_sub().
template <class T>
Variable<T>& operator+=(Variable<T>& variable, const std::type_identity_t<detail::VariableChange<T>>& by) {
  variable.assign_add(by.in_shape(variable.shape(), "+"), by.origin());
  return variable;
}
template <class T>
Variable<T>& operator-=(Variable<T>& variable, const std::type_identity_t<detail::VariableChange<T>>& by) {
  variable.assign_sub(by.in_shape(variable.shape(), "-"), by.origin());
  return variable;
}
// Are refused, because replicas' factors have no sum.
template <class T, class X>
Variable<T>& operator*=(Variable<T>& variable, const X& /*by*/) {
  static_assert(std::is_void_v<X>, "lockstep: a variable has += and -=; for others write w.assign(w * x)");
  return variable;
}
template <class T, class X>
Variable<T>& operator/=(Variable<T>& variable, const X& /*by*/) {
  static_assert(std::is_void_v<X>, "lockstep: a variable has += and -=; for others write w.assign(w / x)");
  return variable;
}

}  // namespace lockstep
