// SPDX-License-Identifier: Apache-2.0
// Holds the one loop that all reductions share, compiled once for each set of vector instructions. It loads four
// vectors of every source at a time, combines them in registers, and stores. The rest goes through the same
// instructions, one vector or some bytes at a time. So a number's bits do not depend on its position in the buffer.
// Formats (formats-inl.hpp) load and store four vectors; operations combine two.
#if defined(LOCKSTEP_KERNELS_LOOPS) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_LOOPS
#undef LOCKSTEP_KERNELS_LOOPS
#else
#define LOCKSTEP_KERNELS_LOOPS
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "collectives/kernels/kernels.hpp"
#include "collectives/kernels/streaming.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Stands for a number of sources that is known only at run time.
inline constexpr int told = 0;

// Gives the size of a cache line in bytes. Streamed results begin at a line if that is at most four vectors away. Where
// it matters, vectors are not wider than a line.
inline constexpr std::size_t line_bytes = 64;

// Describes one call of a loop: `bytes` bytes from each of `number` sources. It owns no memory.
struct LoopCall {
  std::uint8_t* target;
  const void* const* sources;
  int number;
  std::size_t bytes;
  std::size_t element_bytes;
};

template <class Format, class Op>
class Loop {
 public:
  // Runs the call. `fixed` is the number of sources, or `told`. Small data need none of the loop's set-up.
  template <int fixed>
  static HWY_INLINE void run(const Op& op, const LoopCall& call) {
    if (call.bytes >= Format::chunk_bytes())
      run_large<fixed>(op, call);
    else if (call.bytes > 0)
      combine_part(op, call, 0, call.bytes);
  }

 private:
  template <int fixed>
  static HWY_NOINLINE void run_large(const Op& op, const LoopCall& given) {
    // The pointers are copied to the stack, where the compiler sees that no store changes them.
    constexpr std::size_t room = fixed == told ? 1 : static_cast<std::size_t>(fixed);
    const void* local_sources[room];
    LoopCall call = given;
    if constexpr (fixed != told) {
      std::copy_n(given.sources, fixed, local_sources);
      call.sources = local_sources;
    }
    const std::size_t step = Format::chunk_bytes();
    const bool streamed = streams(call);
    std::size_t at = streamed ? misalignment(call.target) : 0;
    if (at > 0) combine_part(op, call, 0, at);
    for (; call.bytes - at >= step; at += step) combine<fixed, false>(op, call, at, step, streamed);
    if (streamed) hwy::FlushStream();
    if (at < call.bytes) combine_part(op, call, at, call.bytes - at);
  }

  // Combines less than four vectors. It is compiled once for all numbers of sources, since only the loop has to be
  // fast.
  static HWY_NOINLINE void combine_part(const Op& op, const LoopCall& call, std::size_t at, std::size_t bytes) {
    if constexpr (has_pieces) {
      const std::size_t end = at + bytes;
      for (; end - at >= Format::vector_bytes(); at += Format::vector_bytes()) {
        combine_few(
            op, call, at, [](const std::uint8_t* from) { return Format::template load<0>(from); },
            [](std::uint8_t* to, auto vector) { Format::store_one(to, vector); });
      }
      for (; end - at >= 8 && call.element_bytes <= 8; at += 8) combine_piece<std::uint64_t>(op, call, at);
      for (; end - at >= 4 && call.element_bytes <= 4; at += 4) combine_piece<std::uint32_t>(op, call, at);
      if (end == at) return;
      bytes = end - at;
    }
    combine<told, true>(op, call, at, bytes, false);
  }

  // Tells if the format can load a piece of a vector.
  static constexpr bool has_pieces = requires(const std::uint8_t* from) {
    Format::template load_piece<std::uint64_t>(from);
  };

  template <class Piece>
  static HWY_INLINE void combine_piece(const Op& op, const LoopCall& call, std::size_t at) {
    combine_few(
        op, call, at, [](const std::uint8_t* from) { return Format::template load_piece<Piece>(from); },
        [](std::uint8_t* to, auto vector) { Format::template store_piece<Piece>(to, vector); });
  }

  template <class Load, class Store>
  static HWY_INLINE void combine_few(const Op& op, const LoopCall& call, std::size_t at, const Load& load,
                                     const Store& store) {
    const auto source = [&](int k) { return static_cast<const std::uint8_t*>(call.sources[k]) + at; };
    auto all = load(source(0));
    for (int k = 1; k < call.number; ++k) all = op.apply(all, load(source(k)));
    store(call.target + at, op.finish(all));
  }

  // Returns the bytes up to the next address at which a streamed store may begin.
  static std::size_t misalignment(const std::uint8_t* target) {
    const std::size_t alignment = std::min(line_bytes, Format::chunk_bytes());
    return (alignment - reinterpret_cast<std::uintptr_t>(target) % alignment) % alignment;
  }

  // Returns true if the result is streamed. A reduction in place is not, since it has read the lines anyway.
  static bool streams(const LoopCall& call) {
    if (HWY_TARGET == HWY_SCALAR || call.bytes < streaming_size().load(std::memory_order_relaxed)) return false;
    const std::size_t head = misalignment(call.target);
    if (head % call.element_bytes != 0 || head > call.bytes) return false;
    return std::find(call.sources, call.sources + call.number, call.target) == call.sources + call.number;
  }

  template <bool partial>
  static HWY_INLINE const std::uint8_t* piece(const void* source, std::size_t at, std::uint8_t* buffer,
                                              std::size_t bytes) {
    const std::uint8_t* from = static_cast<const std::uint8_t*>(source) + at;
    if constexpr (!partial) return from;
    std::memcpy(buffer, from, bytes);
    return buffer;
  }

  // Combines four vectors, or the given bytes if `partial`.
  template <int fixed, bool partial>
  static HWY_INLINE void combine(const Op& op, const LoopCall& call, std::size_t at, std::size_t bytes, bool streamed) {
    alignas(64) std::uint8_t buffer[partial ? Format::max_chunk_bytes : 1] = {};
    const std::uint8_t* from = piece<partial>(call.sources[0], at, buffer, bytes);
    auto a0 = Format::template load<0>(from);
    auto a1 = Format::template load<1>(from);
    auto a2 = Format::template load<2>(from);
    auto a3 = Format::template load<3>(from);
    const int number = fixed == told ? call.number : fixed;
    for (int k = 1; k < number; ++k) {
      from = piece<partial>(call.sources[k], at, buffer, bytes);
      a0 = op.apply(a0, Format::template load<0>(from));
      a1 = op.apply(a1, Format::template load<1>(from));
      a2 = op.apply(a2, Format::template load<2>(from));
      a3 = op.apply(a3, Format::template load<3>(from));
    }
    a0 = op.finish(a0);
    a1 = op.finish(a1);
    a2 = op.finish(a2);
    a3 = op.finish(a3);
    if constexpr (partial) {
      Format::store(buffer, a0, a1, a2, a3);
      std::memcpy(call.target + at, buffer, bytes);
    } else if (streamed) {
      Format::stream(call.target + at, a0, a1, a2, a3);
    } else {
      Format::store(call.target + at, a0, a1, a2, a3);
    }
  }
};

// Combines two sources. An element is `lanes` of the format's numbers: two for complex and located values.
template <class Format, class Op, std::size_t lanes>
void reduce_two(void* target, const void* left, const void* right, std::size_t count) {
  const void* const sources[] = {left, right};
  constexpr std::size_t size = Format::size * lanes;
  Loop<Format, Op>::template run<2>(Op{}, {static_cast<std::uint8_t*>(target), sources, 2, count * size, size});
}

// Combines any number of sources; one source is a copy. Sums are the light operations: the most frequent ones, and no
// slower than their loads. So common numbers of sources have loops of their own, a fifth to a half faster in the first
// cache.
template <class Format, class Op, std::size_t lanes>
void reduce_many(void* target, const void* const* sources, int number, std::size_t count) {
  using Loops = Loop<Format, Op>;
  constexpr std::size_t size = Format::size * lanes;
  const LoopCall call{static_cast<std::uint8_t*>(target), sources, number, count * size, size};
  if (number == 1) {
    if (count > 0 && target != sources[0]) std::memcpy(target, sources[0], call.bytes);
    return;
  }
  if (number == 2) return Loops::template run<2>(Op{}, call);
  if constexpr (Op::is_light) {
    if (number == 3) return Loops::template run<3>(Op{}, call);
    if (number == 4) return Loops::template run<4>(Op{}, call);
    if (number == 8) return Loops::template run<8>(Op{}, call);
  }
  Loops::template run<told>(Op{}, call);
}

// Returns the kernel of a format and an operation.
template <class Format, class Op, std::size_t lanes = 1>
Kernel kernel_of() {
  return {&reduce_two<Format, Op, lanes>, &reduce_many<Format, Op, lanes>};
}

}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
