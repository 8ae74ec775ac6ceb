// SPDX-License-Identifier: Apache-2.0
// What one thread of a GPU does where the parts of several members become one, straight from all inputs into all
// outputs. The host's compiler takes it, too, so that all of it is tried without a GPU.
#pragma once

#include <cstddef>

#include "collectives/gpu/arithmetic.hpp"

namespace lockstep::gpu {

inline constexpr int most_parts = 64;
inline constexpr std::size_t vector_bytes = 16;  // that a thread reads and writes at once

// Handed to the GPU as it is.
struct CombineArguments {
  // NOLINTBEGIN(modernize-avoid-c-arrays): std::array's functions are the host's
  const void* inputs[most_parts];
  void* outputs[most_parts];  // any of which may be one of the inputs
  double factors[most_parts];
  // NOLINTEND(modernize-avoid-c-arrays)
  int input_count = 0;
  int output_count = 0;
  std::size_t count = 0;  // of elements
  ReduceOp op = ReduceOp::sum;
  bool by_tree = false;      // the reproducible order; else from left to right
  bool scales = false;       // every input is multiplied by its factor first
  std::int64_t divisor = 0;  // of the result; 0: none
  bool is_aligned = false;   // all of them, to vectors
};

// What elements of a format are divided by; nothing is made of it where they cannot be, or are not.
struct NoDivisor {};
template <class F>
constexpr bool divides = requires {
  typename F::Divisor;
};
template <class F>
struct DivisorOf {
  using Type = NoDivisor;
  LOCKSTEP_BOTH static Type of(std::int64_t /*number*/) { return {}; }
};
template <class F>
requires divides<F>
struct DivisorOf<F> {
  using Type = typename F::Divisor;
  LOCKSTEP_BOTH static Type of(std::int64_t number) { return F::by(number == 0 ? 1 : number); }
};

template <class F>
constexpr bool divides_exactly = requires(typename F::Stored value) {
  F::divide_exactly(value, F::by(1));
};

// Calls `use` with how elements of a format are divided by a number, of which 0 is none.
template <class F, class Use>
void with_dividing(std::int64_t divisor, const Use& use) {
  if constexpr (divides_exactly<F>) {
    if (divisor > 0 && (divisor & (divisor - 1)) == 0)
      return use(std::integral_constant<DivisionMode, DivisionMode::exactly>());
  }
  if constexpr (divides<F>) {
    if (divisor != 0) return use(std::integral_constant<DivisionMode, DivisionMode::by_any>());
  }
  use(std::integral_constant<DivisionMode, DivisionMode::none>());
}

template <class T, std::size_t lanes>
struct alignas(sizeof(T) * lanes) Lanes {
  T at[lanes];  // NOLINT(modernize-avoid-c-arrays)
};

// The elements from `at` on, as many as lanes.
template <class F, std::size_t lanes, DivisionMode dividing>
struct VectorCombiner {
  using Stored = typename F::Stored;
  using Wide = typename F::Wide;
  using Elements = Lanes<Stored, lanes>;

  LOCKSTEP_BOTH static Elements read(const CombineArguments& all, int input, std::size_t at) {
    Elements whole;
    const void* const from = static_cast<const Stored*>(all.inputs[input]) + at;
    if constexpr (lanes > 1)
      whole = *static_cast<const Elements*>(from);
    else
      whole.at[0] = *static_cast<const Stored*>(from);
    if constexpr (requires { F::scale(Stored(), 1.0); }) {
      if (all.scales) {
        for (std::size_t i = 0; i < lanes; ++i) whole.at[i] = F::scale(whole.at[i], all.factors[input]);
      }
    }
    return whole;
  }

  LOCKSTEP_BOTH static Elements from_left(const CombineArguments& all, std::size_t at) {
    Elements whole = read(all, 0, at);
    if (all.input_count == 1) return whole;
    Wide sums[lanes];  // NOLINT(modernize-avoid-c-arrays)
    for (std::size_t i = 0; i < lanes; ++i) sums[i] = F::load(whole.at[i]);
    for (int input = 1; input < all.input_count; ++input) {
      whole = read(all, input, at);
      for (std::size_t i = 0; i < lanes; ++i) sums[i] = F::combine(all.op, sums[i], F::load(whole.at[i]));
    }
    for (std::size_t i = 0; i < lanes; ++i) whole.at[i] = F::store(sums[i]);
    return whole;
  }

  LOCKSTEP_BOTH static Elements two(ReduceOp op, Elements left, const Elements& right) {
    for (std::size_t i = 0; i < lanes; ++i)
      left.at[i] = F::store(F::combine(op, F::load(left.at[i]), F::load(right.at[i])));
    return left;
  }

  // By the balanced tree, whose subtrees are aligned groups of 2^k: as a counter carries, so do they become one.
  LOCKSTEP_BOTH static Elements by_tree(const CombineArguments& all, std::size_t at) {
    constexpr int levels = 8;
    // By level; which ones are there, `input` says.
#ifdef __CUDA_ARCH__
    Elements waiting[levels];
#else
    Elements waiting[levels] = {};  // NOLINT(modernize-avoid-c-arrays): for compilers that cannot see it
#endif
    for (int input = 0; input < all.input_count; ++input) {
      Elements whole = read(all, input, at);
      int level = 0;
      for (; (input >> level & 1) != 0; ++level) whole = two(all.op, waiting[level], whole);
      waiting[level] = whole;
    }
    int level = 0;
    while ((all.input_count >> level & 1) == 0) ++level;
    Elements whole = waiting[level];
    for (++level; all.input_count >> level != 0; ++level) {
      if ((all.input_count >> level & 1) != 0) whole = two(all.op, waiting[level], whole);
    }
    return whole;
  }

  LOCKSTEP_BOTH static Elements divided(const Elements& sums, const typename DivisorOf<F>::Type& divisor) {
    Elements whole = sums;
    if constexpr (dividing == DivisionMode::exactly) {
      for (std::size_t i = 0; i < lanes; ++i) whole.at[i] = F::divide_exactly(sums.at[i], divisor);
    } else if constexpr (dividing == DivisionMode::by_any) {
      bool is_right = true;
      for (std::size_t i = 0; i < lanes; ++i) whole.at[i] = F::divide(sums.at[i], divisor, &is_right);
      for (std::size_t i = 0; i < lanes && !is_right; ++i) whole.at[i] = F::divide(sums.at[i], divisor);
    }
    return whole;
  }

  LOCKSTEP_BOTH static void combine(const CombineArguments& all, const typename DivisorOf<F>::Type& divisor,
                                    std::size_t at) {
    const Elements whole = divided(all.by_tree ? by_tree(all, at) : from_left(all, at), divisor);
    for (int output = 0; output < all.output_count; ++output) {
      void* const to = static_cast<Stored*>(all.outputs[output]) + at;
      if constexpr (lanes > 1)
        *static_cast<Elements*>(to) = whole;
      else
        *static_cast<Stored*>(to) = whole.at[0];
    }
  }
};

// The part of one thread of so many.
template <class F, DivisionMode dividing>
LOCKSTEP_BOTH void combine_thread(const CombineArguments& all, std::size_t thread, std::size_t threads) {
  constexpr std::size_t lanes = vector_bytes / sizeof(typename F::Stored);
  const std::size_t vectors = all.is_aligned ? all.count / lanes : 0;
  const auto divisor = DivisorOf<F>::of(all.divisor);
  for (std::size_t i = thread; i < vectors; i += threads)
    VectorCombiner<F, lanes, dividing>::combine(all, divisor, i * lanes);
  for (std::size_t i = vectors * lanes + thread; i < all.count; i += threads)
    VectorCombiner<F, 1, dividing>::combine(all, divisor, i);
}
template <class F>
void combine_thread(const CombineArguments& all, std::size_t thread, std::size_t threads) {
  with_dividing<F>(all.divisor, [&]<DivisionMode dividing>(std::integral_constant<DivisionMode, dividing>) {
    combine_thread<F, dividing>(all, thread, threads);
  });
}

}  // namespace lockstep::gpu
