// SPDX-License-Identifier: Apache-2.0
// Calculates with tensors, element by element: -a, a + b, a - b, a * b, a / b, and a += b and so on. Lengths of 1, and
// axes that are missing on the left, are repeated as by NumPy. Integers wrap around, and divide towards zero. Pure.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

#include "runtime/values/arithmetic.hpp"
#include "runtime/values/tensor.hpp"

namespace lockstep {
namespace detail {

// Holds for an element and types that a program calculates with like a tensor. `Operand<X>::value(x)` returns an object
// with shape() and data(). Element is void for other types.
template <class X>
struct Operand {
  using Element = void;
};
template <class T>
struct Operand<Tensor<T>> {
  using Element = T;
  static const Tensor<T>& value(const Tensor<T>& tensor) { return tensor; }
};
template <class T>
struct Operand<TensorSpan<T>> {
  using Element = std::remove_const_t<T>;
  static const TensorSpan<T>& value(const TensorSpan<T>& rows) { return rows; }
};
template <class X>
using OperandElement = typename Operand<std::remove_cvref_t<X>>::Element;
template <class X>
concept TensorLike = !std::is_void_v<OperandElement<X>>;
// Holds for a tensor and another one, or a number.
template <class A, class B>
concept TensorOperands = (TensorLike<A> && (TensorLike<B> || Number<B>)) || (Number<A> && TensorLike<B>);
// Gives the element type of the result.
template <class A, class B>
using CombinedElement = std::conditional_t<TensorLike<A>, OperandElement<A>, OperandElement<B>>;

// True if a number of type N stays the same as an element of type T. An integer may become a type with fractions.
template <class T, class N>
constexpr bool fits_element() {
  if constexpr (std::is_same_v<T, N>)
    return true;
  else if constexpr (!std::is_integral_v<N> || std::is_same_v<N, bool> || std::is_same_v<T, bool>)
    return false;
  else
    return is_fractional_number<T> || requires(N number) { T{number}; }
  || (std::is_same_v<N, int> && sizeof(T) >= 4);
}

// Explains operands whose types do not fit, by one sentence of the compiler. Returns true if they fit.
template <class T, class X>
constexpr bool check_operand() {
  if constexpr (TensorLike<X>) {
    static_assert(std::is_same_v<T, OperandElement<X>>,
                  "lockstep: tensors of different element types are not combined; convert one: cast<float>(tensor)");
    return std::is_same_v<T, OperandElement<X>>;
  } else {
    static_assert(fits_element<T, X>(),
                  "lockstep: this number may not fit the tensor's elements; give it their type (0.1F for float), or "
                  "convert the tensor: cast<double>(tensor)");
    return fits_element<T, X>();
  }
}
template <class T, class A, class B>
constexpr bool check_operands() {
  static_assert(!std::is_same_v<T, bool>, "lockstep: tensors of bool have no arithmetic; cast<int>(tensor) counts");
  return !std::is_same_v<T, bool> && check_operand<T, A>() && check_operand<T, B>();
}

// Returns an operand as a tensor, or as rows of one.
template <class T, class X>
decltype(auto) operand_value(const X& operand) {
  if constexpr (TensorLike<X>)
    return Operand<X>::value(operand);
  else if constexpr (std::is_same_v<T, X>)
    return Tensor<T>(operand);
  else if constexpr (is_small_float<T>)
    return Tensor<T>(static_cast<T>(static_cast<float>(operand)));
  else if constexpr (is_complex<T>)
    return Tensor<T>(T(static_cast<typename T::value_type>(operand)));
  else
    return Tensor<T>(static_cast<T>(operand));
}

// Tells which elements meet. The result's elements are walked in lines: along a line, an operand's element is the next
// one or stays the same.
class BroadcastLines {
 public:
  // Throws Error usage for shapes that do not fit. `symbol` is the operator, for the message.
  BroadcastLines(const TensorShape& a, const TensorShape& b, const char* symbol);

  const TensorShape& shape() const { return shape_; }  // Returns the shape of the result.
  // Calls `line(first of the result, first of a, first of b)` for each line.
  void for_each(const std::function<void(std::size_t, std::size_t, std::size_t)>& line) const;
  std::size_t length() const { return length_; }  // Returns the number of elements of a line.
  // Return the step from one element of a line to the next: 0 or 1.
  std::size_t a_step() const { return a_step_; }
  std::size_t b_step() const { return b_step_; }

 private:
  TensorShape shape_;
  std::size_t length_ = 0, a_step_ = 1, b_step_ = 1;
  int axes_ = 0;  // Is the number of axes that the lines are counted by.
  std::array<std::size_t, TensorShape::most_axes> lengths_{}, a_strides_{}, b_strides_{};
};

// Throws Error usage if a += b and so on would change a's shape.
void check_in_place(const TensorShape& a, const TensorShape& result, const char* symbol);

template <UpdateOp op>
constexpr const char* symbol_of = op == UpdateOp::add        ? "+"
                                  : op == UpdateOp::subtract ? "-"
                                  : op == UpdateOp::multiply ? "*"
                                                             : "/";

template <UpdateOp op, class T>
void combine_lines(const BroadcastLines& lines, T* to, const T* a, const T* b) {
  const std::size_t a_step = lines.a_step(), b_step = lines.b_step();
  lines.for_each([&](std::size_t first, std::size_t a_first, std::size_t b_first) {
    T* const result = to + first;
    const T* const left = a + a_first;
    const T* const right = b + b_first;
    for (std::size_t i = 0; i < lines.length(); ++i) result[i] = changed(op, left[i * a_step], right[i * b_step]);
  });
}

template <UpdateOp op, class A, class B>
auto combined(const A& a, const B& b) {
  using T = CombinedElement<A, B>;
  if constexpr (!check_operands<T, A, B>()) {
    return Tensor<T>();
  } else {
    decltype(auto) left = operand_value<T>(a);
    decltype(auto) right = operand_value<T>(b);
    const BroadcastLines lines(left.shape(), right.shape(), symbol_of<op>);
    Tensor<T> result(lines.shape());
    combine_lines<op, T>(lines, result.data(), left.data(), right.data());
    return result;
  }
}

// Changes `a`. Works on a copy of `b` if that is in the same memory at another place.
template <UpdateOp op, class A, class B>
void combine_in_place(A& a, const B& b) {
  using T = OperandElement<A>;
  if constexpr (check_operands<T, A, B>()) {
    decltype(auto) right = operand_value<T>(b);
    const BroadcastLines lines(a.shape(), right.shape(), symbol_of<op>);
    check_in_place(a.shape(), lines.shape(), symbol_of<op>);
    const std::less<const T*> before;
    const bool overlaps = before(right.data(), a.data() + a.size()) && before(a.data(), right.data() + right.size());
    const bool is_other = overlaps && (right.data() != a.data() || right.size() != a.size());
    if constexpr (op == UpdateOp::divide && std::is_integral_v<T>) {
      for (const T& divisor : right) {  // Checks all before it changes anything.
        if (divisor == T{}) refuse_change("division of an integer by zero");
      }
    }
    if (is_other)
      combine_lines<op, T>(lines, a.data(), a.data(),
                           Tensor<T>(right.shape(), std::span(right.data(), right.size())).data());
    else
      combine_lines<op, T>(lines, a.data(), a.data(), right.data());
  }
}

// Holds for a tensor, or rows, that can be changed.
template <class A>
concept ChangeableTensor = TensorLike<A> && requires(A& a) {
  { a.data() } -> std::same_as<OperandElement<A>*>;
};

}  // namespace detail

// Return the elements combined. Throw Error usage for shapes that do not fit, and for an integer divided by zero.
template <class A, class B>
requires detail::TensorOperands<A, B>
auto operator+(const A& a, const B& b) { return detail::combined<detail::UpdateOp::add>(a, b); }
template <class A, class B>
requires detail::TensorOperands<A, B>
auto operator-(const A& a, const B& b) { return detail::combined<detail::UpdateOp::subtract>(a, b); }
template <class A, class B>
requires detail::TensorOperands<A, B>
auto operator*(const A& a, const B& b) { return detail::combined<detail::UpdateOp::multiply>(a, b); }
template <class A, class B>
requires detail::TensorOperands<A, B>
auto operator/(const A& a, const B& b) { return detail::combined<detail::UpdateOp::divide>(a, b); }
template <detail::TensorLike A>
auto operator-(const A& a) {
  using T = detail::OperandElement<A>;
  static_assert(!std::is_same_v<T, bool>, "lockstep: tensors of bool have no arithmetic; cast<int>(tensor) counts");
  decltype(auto) value = detail::Operand<A>::value(a);
  Tensor<T> result(value.shape());
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = detail::calculate(value.data()[i], value.data()[i], [](auto x, auto /*same*/) { return -x; });
  return result;
}

// Change a tensor, or rows of one, in place. Its shape stays the same.
template <class A, class B>
requires detail::ChangeableTensor<A> && detail::TensorOperands<A, B> A && operator+=(A&& a, const B& b) {
  detail::combine_in_place<detail::UpdateOp::add>(a, b);
  return std::forward<A>(a);
}
template <class A, class B>
requires detail::ChangeableTensor<A> && detail::TensorOperands<A, B> A && operator-=(A&& a, const B& b) {
  detail::combine_in_place<detail::UpdateOp::subtract>(a, b);
  return std::forward<A>(a);
}
template <class A, class B>
requires detail::ChangeableTensor<A> && detail::TensorOperands<A, B> A && operator*=(A&& a, const B& b) {
  detail::combine_in_place<detail::UpdateOp::multiply>(a, b);
  return std::forward<A>(a);
}
template <class A, class B>
requires detail::ChangeableTensor<A> && detail::TensorOperands<A, B> A && operator/=(A&& a, const B& b) {
  detail::combine_in_place<detail::UpdateOp::divide>(a, b);
  return std::forward<A>(a);
}

}  // namespace lockstep
