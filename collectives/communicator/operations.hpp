// SPDX-License-Identifier: Apache-2.0
// Declares the operations of a reduction that users write: `sum`, `max`, `premul_sum(0.5)`, `ordered(f)`. The compiler
// checks each against the element type, and a sentence in its error explains the misfit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "collectives/fingerprints.hpp"
#include "collectives/gpu/user_launch.hpp"
#include "collectives/types.hpp"
#include "collectives/user_reduce.hpp"

namespace lockstep {

// Carries a built-in operation in its type, so that the compiler can check it against the element type.
template <ReduceOp which>
struct BuiltInOp {
  static constexpr ReduceOp op = which;
};

inline constexpr BuiltInOp<ReduceOp::sum> sum;
inline constexpr BuiltInOp<ReduceOp::prod> prod;
inline constexpr BuiltInOp<ReduceOp::min> min;
inline constexpr BuiltInOp<ReduceOp::max> max;
inline constexpr BuiltInOp<ReduceOp::avg> avg;
inline constexpr BuiltInOp<ReduceOp::logical_and> logical_and;
inline constexpr BuiltInOp<ReduceOp::logical_or> logical_or;
inline constexpr BuiltInOp<ReduceOp::logical_xor> logical_xor;
inline constexpr BuiltInOp<ReduceOp::bit_and> bit_and;
inline constexpr BuiltInOp<ReduceOp::bit_or> bit_or;
inline constexpr BuiltInOp<ReduceOp::bit_xor> bit_xor;

// Sums the ranks' data, each multiplied by that rank's own factor. Factors may differ between ranks.
struct PremulSum {
  static constexpr ReduceOp op = ReduceOp::premul_sum;
  double factor;
};
inline PremulSum premul_sum(double factor) { return {factor}; }

// Marks a user function that has no form for GPUs: it then runs on the host.
struct NoLauncher {};

// Holds a copy of the user's function T(T, T), which is associative. If it commutes, ranks' data may be combined in any
// order. Otherwise the operands keep the order of the ranks.
//
// Ranks compare the function's type and, for a function pointer, its library and its offset there. They do not compare
// captured values. If the user gives a name, they compare only that, so ranks may run different programs.
template <class Function, bool does_commute, class Launcher = NoLauncher>
struct UserFunction {
  static constexpr ReduceOp op = ReduceOp::user;
  static constexpr bool commutes = does_commute;
  Function function;
  Launcher launcher = {};
  std::uint64_t name = 0;  // The fingerprint of the user's name; 0 if none was given.

  // Returns a copy that also reduces data in GPUs' memory. The launcher is copied like the function. It is called as
  // launcher(left, right, out, count, stream), with const T* left and right, T* out, and a cudaStream_t as void*.
  //
  // It puts out[i] = function(left[i], right[i]) into that stream of the current GPU, in which the addresses are valid.
  // `out` may be exactly `left` or `right`. Any thread that calls or waits may call it. It throws if it fails.
  template <class Other>
  UserFunction<Function, does_commute, Other> on_gpu(Other other) const {
    return {function, std::move(other), name};
  }
};
// Makes an operation of an associative and commutative function; ranks' data is combined in any order.
template <class Function>
UserFunction<Function, true> commutative(Function function, std::string_view name = {}) {
  return {std::move(function), {}, name.empty() ? 0 : Fingerprint().add(name).value()};
}
// Makes an operation of an associative function; the operands stay in rank order.
template <class Function>
UserFunction<Function, false> ordered(Function function, std::string_view name = {}) {
  return {std::move(function), {}, name.empty() ? 0 : Fingerprint().add(name).value()};
}

namespace detail {

// Returns a fingerprint of the library's name and the code's offset there. Both are equal in all processes, unlike the
// address. Returns 0 if no library contains the code.
std::uint64_t fingerprint_of_code(const void* code);

// Returns a fingerprint of the function's type, and of the element type if Lockstep does not know it. All processes
// that run the same program get the same one. Without RTTI it is 0, so types are not compared.
template <class T, class Function>
std::uint64_t fingerprint_of_type() {
#ifdef __cpp_rtti
  static const std::uint64_t known = [] {
    Fingerprint print;
    print.add(typeid(Function).name());
    if (data_type_of<T> == DataType::opaque) print.add(typeid(T).name());
    return print.value();
  }();
  return known;
#else
  return 0;
#endif
}

// Returns the fingerprint by which ranks compare a function that has no name.
template <class T, class Function>
std::uint64_t fingerprint_of(const Function& function) {
  const std::uint64_t type = fingerprint_of_type<T, Function>();
  if constexpr (std::is_pointer_v<Function>)
    return Fingerprint().add(type).add(fingerprint_of_code(reinterpret_cast<const void*>(function))).value();
  else
    return type;
}

// Holds the parts that only a user's reduction has, with their types erased.
struct UserReduction {
  UserReduce on_host;
  gpu::UserLaunch on_gpu = {};
  std::uint64_t fingerprint = 0;  // Identifies the function.
  bool is_named = false;          // True if other ranks may have another function of that name.
};

// Holds a reduction after the compiler has checked its types and erased them. The user's part is large, and most calls
// have none, so nothing of it is written.
struct Reduction {
  ReduceOp op;
  bool commutes = true;
  double factor = 1;
  std::optional<UserReduction> user = {};
};

// Applies a copy of the user's function to `count` elements on the host, so that the captured values never change.
template <class T, class Function>
void apply_each(const void* state, void* target, const void* left, const void* right, std::size_t count) {
  Function function = *static_cast<const Function*>(state);
  auto* to = static_cast<T*>(target);
  const auto* a = static_cast<const T*>(left);
  const auto* b = static_cast<const T*>(right);
  for (std::size_t i = 0; i < count; ++i) to[i] = function(a[i], b[i]);
}

// Calls a copy of a user's launcher for `count` elements on the current GPU.
template <class T, class Launcher>
void put_each(const void* state, const void* left, const void* right, void* out, std::size_t count,
              gpu::Stream stream) {
  Launcher launcher = *static_cast<const Launcher*>(state);
  launcher(static_cast<const T*>(left), static_cast<const T*>(right), static_cast<T*>(out), count, stream);
}

// True for the logical operations too: like the bitwise ones, they take only integers and bool.
constexpr bool is_bitwise(ReduceOp op) { return op >= ReduceOp::logical_and && op <= ReduceOp::bit_xor; }
constexpr bool is_located(DataType type) { return type >= DataType::located_i32 && type <= DataType::located_f64; }
constexpr bool is_fractional(DataType type) { return type >= DataType::f16 && type <= DataType::c128; }

// Copies the user's function byte by byte into a Reduction; the compiler refuses one that cannot be copied so.
template <class T, class Function>
UserReduction user_reduction(const Function& function) {
  static_assert(std::is_invocable_r_v<T, Function, const T&, const T&>,
                "lockstep: your reduction must be callable as T(T, T), T being the element type of the buffers");
  static_assert(
      std::is_trivially_copyable_v<Function> && sizeof(Function) <= UserReduce::state_bytes,
      "lockstep: your reduction is copied byte by byte: capture plain values of at most 48 bytes in all, or a "
      "pointer to larger data");
  UserReduction reduction{.on_host = {.apply = &apply_each<T, Function>, .has_state = !std::is_empty_v<Function>}};
  std::memcpy(reduction.on_host.state.data(), &function, sizeof function);
  return reduction;
}

// Copies the user's launcher byte by byte, as user_reduction() copies the function.
template <class T, class Launcher>
gpu::UserLaunch user_launch(const Launcher& launcher) {
  static_assert(
      std::is_invocable_v<Launcher, const T*, const T*, T*, std::size_t, gpu::Stream>,
      "lockstep: the function given to on_gpu() must be callable with (const T* left, const T* right, T* out, "
      "std::size_t count, void* stream), T being the element type of the buffers");
  static_assert(std::is_trivially_copyable_v<Launcher> && sizeof(Launcher) <= gpu::UserLaunch::state_bytes,
                "lockstep: the function given to on_gpu() is copied byte by byte: capture plain values of at most 48 "
                "bytes in all, or a "
                "pointer to larger data");
  gpu::UserLaunch own{.put = &put_each<T, Launcher>};
  std::memcpy(own.state.data(), &launcher, sizeof launcher);
  return own;
}

// Sets the operation for elements of type T; the compiler refuses one that does not fit T.
template <class T, class Op>
void set_reduction(Reduction& reduction, const Op& op) {
  constexpr DataType type = data_type_of<T>;
  reduction.op = Op::op;
  if constexpr (Op::op == ReduceOp::user) {
    reduction.commutes = Op::commutes;
    UserReduction& user = reduction.user.emplace(user_reduction<T>(op.function));
    user.is_named = op.name != 0;
    user.fingerprint = user.is_named ? op.name : fingerprint_of<T>(op.function);
    if constexpr (!std::is_same_v<decltype(op.launcher), NoLauncher>) user.on_gpu = user_launch<T>(op.launcher);
  } else {
    static_assert(type != DataType::opaque,
                  "lockstep: this type is unknown to the built-in operations; give your own function: commutative(f) "
                  "or ordered(f)");
    static_assert(!(is_bitwise(Op::op) && is_fractional(type)),
                  "lockstep: logical and bitwise operations are for integers and bool; floats and complex numbers have "
                  "sum, prod, avg, and (but for complex) min and max");
    static_assert(!(is_located(type) && Op::op != ReduceOp::min && Op::op != ReduceOp::max),
                  "lockstep: a Located value can be reduced with min and max only");
    static_assert(
        !((type == DataType::c64 || type == DataType::c128) && (Op::op == ReduceOp::min || Op::op == ReduceOp::max)),
        "lockstep: complex numbers have no order, so neither min nor max");
    static_assert(type != DataType::boolean || is_bitwise(Op::op),
                  "lockstep: bool can be reduced with logical_and, logical_or, logical_xor (or the bitwise ones); to "
                  "count, sum integers");
    if constexpr (Op::op == ReduceOp::premul_sum) reduction.factor = op.factor;
  }
}

}  // namespace detail
}  // namespace lockstep
