// SPDX-License-Identifier: Apache-2.0
// Tells which values replicas can combine, by which operations, and explains the others in one sentence. Pure.
#pragma once

#include <concepts>
#include <string_view>
#include <type_traits>

#include "collectives/contiguous.hpp"
#include "runtime/named_op.hpp"
#include "runtime/values/slices.hpp"
#include "runtime/values/structure.hpp"
#include "runtime/values/tensor_view.hpp"

namespace lockstep::detail {

// Explains a value that has leaves of other types, by one sentence of the compiler. Returns true if it has none.
template <class S>
constexpr bool check_leaves() {
  constexpr bool can_be_combined = all_leaves<S>(
      []<class Leaf>() { return Number<Leaf> || ContiguousRange<Leaf> || HasView<Leaf> || is_slices<Leaf>; });
  static_assert(can_be_combined,
                "lockstep: replicas combine numbers, tensors, contiguous ranges of numbers, and structures of these; "
                "let a struct of your own name its fields by lockstep::Fields (docs/variables.md)");
  return can_be_combined;
}

// True for an operation that is known at run time only: "SUM", or a NamedOp.
template <class Op>
concept OpOfRunTime = std::is_convertible_v<Op, NamedOp> && !requires {
  Op::op;
};

// Explains an argument that is no operation. Returns true if it is one.
template <class Op>
constexpr bool check_op() {
  constexpr bool is_operation = OpOfRunTime<Op> || requires { Op::op; };
  static_assert(is_operation,
                "lockstep: an operation is sum, avg, op::min, op::max, prod, \"SUM\" and the like, or a function of "
                "your own: commutative(f), ordered(f)");
  return is_operation;
}

// True if elements of type T have the operation: one of sum, avg, min, max and prod.
template <class T>
constexpr bool is_defined(ReduceOp op) {
  constexpr DataType type = data_type_of<T>;
  const bool selects = op == ReduceOp::min || op == ReduceOp::max;
  if (type == DataType::boolean || type == DataType::opaque) return false;
  if (is_located(type)) return selects;
  return !selects || (type != DataType::c64 && type != DataType::c128);
}

// True if all leaves of a structure have the operation. Memory without a static type is checked by its collective.
template <class S, ReduceOp op>
constexpr bool has_op() {
  return all_leaves<S>([]<class Leaf>() {
    if constexpr (Number<Leaf>)
      return is_defined<Leaf>(op);
    else if constexpr (is_slices<Leaf>)
      return op == ReduceOp::sum || op == ReduceOp::avg;
    else if constexpr (ContiguousRange<Leaf>)
      return is_defined<std::remove_const_t<ElementIn<Leaf>>>(op);
    else
      return true;
  });
}

// Throw Error usage for an operation that the elements do not have, and for the mean of integers.
[[noreturn]] void refuse_op(ReduceOp op);
[[noreturn]] void refuse_mean_of_integers();

// Calls `function` with an operation of run time as an object. Throws Error usage if the leaves of S lack it.
template <class S, class Result, class F>
Result with_op_for(NamedOp op, F&& function) {
  return op.with([&]<ReduceOp which>(BuiltInOp<which> known) -> Result {
    if constexpr (has_op<S, which>())
      return function(known);
    else
      refuse_op(known.op);
  });
}

// Throws Error usage if a mean has leaves of integers, because it would not be exact.
template <class S>
void check_mean(NamedOp op, S& structure) {
  if (op.op() != ReduceOp::avg) return;
  for_each_leaf(structure, [](auto& leaf) {
    using Leaf = std::remove_cvref_t<decltype(leaf)>;
    if constexpr (HasView<Leaf>) {
      if (!is_fractional(leaf.view().type)) refuse_mean_of_integers();
    } else if constexpr (Number<Leaf>) {
      if (!is_fractional_number<Leaf>) refuse_mean_of_integers();
    } else if constexpr (ContiguousRange<Leaf>) {
      if (!is_fractional_number<std::remove_const_t<ElementIn<Leaf>>>) refuse_mean_of_integers();
    }
  });
}

}  // namespace lockstep::detail
