// SPDX-License-Identifier: Apache-2.0
// Holds the work of one GPU thread that combines the parts of several members, straight from all inputs into all
// outputs. The host's compiler takes this file, too, so tests run it without a GPU.
#pragma once

#include <cstddef>

#include "collectives/gpu/arithmetic.hpp"

namespace lockstep::gpu {

// Limits the inputs, and the outputs, of one launch.
inline constexpr int most_parts = 64;
// Gives the bytes that a thread reads and writes at once.
inline constexpr std::size_t vector_bytes = 16;

// Describes one launch; the GPU gets a copy. The caller keeps all inputs and outputs until the launch is done.
struct CombineArguments {
  // NOLINTBEGIN(modernize-avoid-c-arrays): std::array's functions are the host's
  const void* inputs[most_parts];
  void* outputs[most_parts];  // each may also be an input
  double factors[most_parts];
  // NOLINTEND(modernize-avoid-c-arrays)
  int input_count = 0;
  int output_count = 0;
  std::size_t count = 0;  // elements of each input and output
  ReduceOp op = ReduceOp::sum;
  bool by_tree = false;      // sum in the reproducible order; otherwise from left to right
  bool scales = false;       // multiply every input by its factor first
  std::int64_t divisor = 0;  // divide the result by it; 0: no division
  bool is_aligned = false;   // true if every address is aligned to vector_bytes
};

// Serves formats without division, and launches without a division.
struct NoDivisor {};
// True if the format can divide.
template <class F>
constexpr bool divides = requires {
  typename F::Divisor;
};
// Names the divisor type of a format, and makes a divisor of a number; 0 stands for no division.
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

// True if the format can divide by a power of two with one multiplication.
template <class F>
constexpr bool divides_exactly = requires(typename F::Stored value) {
  F::divide_exactly(value, F::by(1));
};

// Calls `use` with the mode of division that this divisor needs; 0 means none.
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

// Holds one vector of elements, aligned so that one instruction loads or stores it.
template <class T, std::size_t lanes>
struct alignas(sizeof(T) * lanes) Lanes {
  T at[lanes];  // NOLINT(modernize-avoid-c-arrays)
};

// Combines the `lanes` elements that begin at index `at` of every input.
template <class F, std::size_t lanes, DivisionMode dividing>
struct VectorCombiner {
  using Stored = typename F::Stored;
  using Wide = typename F::Wide;
  using Elements = Lanes<Stored, lanes>;

  // Reads one input's elements, and multiplies them by its factor if the launch says so.
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

  // Combines from left to right, in the wide type, and rounds to the stored type at the end.
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

  // Combines two vectors, and rounds to the stored type.
  LOCKSTEP_BOTH static Elements two(ReduceOp op, Elements left, const Elements& right) {
    for (std::size_t i = 0; i < lanes; ++i)
      left.at[i] = F::store(F::combine(op, F::load(left.at[i]), F::load(right.at[i])));
    return left;
  }

  // Combines by the balanced tree: its subtrees are aligned groups of 2^k inputs. They merge as a binary counter
  // carries, so one vector per level is enough.
  LOCKSTEP_BOTH static Elements by_tree(const CombineArguments& all, std::size_t at) {
    constexpr int levels = 8;
    // Holds one vector per level; the bits of `input` say which levels are in use.
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

  // Divides the sums. Quick divisions come first; if any may be wrong, all are divided again the slow way.
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

  // Combines, divides, and writes the result to every output.
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

// Does the share of one thread among `threads`.
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
// Chooses the mode of division at run time; tests on the host use it.
template <class F>
void combine_thread(const CombineArguments& all, std::size_t thread, std::size_t threads) {
  with_dividing<F>(all.divisor, [&]<DivisionMode dividing>(std::integral_constant<DivisionMode, dividing>) {
    combine_thread<F, dividing>(all, thread, threads);
  });
}

}  // namespace lockstep::gpu
