// SPDX-License-Identifier: Apache-2.0
// What one thread of a GPU does where many tensors become one stretch of memory, or one stretch becomes many. On the
// way elements may be multiplied, divided, and become floats of another width. The host's compiler takes it, too.
#pragma once

#include <bit>
#include <cstddef>

#include "collectives/gpu/combining.hpp"

namespace lockstep::gpu {

inline constexpr int most_pieces = 120;  // with one launch: what is handed to the GPU has 4 KiB

struct Packing {
  // NOLINTBEGIN(modernize-avoid-c-arrays): std::array's functions are the host's
  std::byte* pieces[most_pieces];
  std::size_t begins[most_pieces + 1];  // in bytes of the whole, of each piece and of what comes behind the last
  double factors[most_pieces];          // of each piece, where it `scales`
  // NOLINTEND(modernize-avoid-c-arrays)
  std::byte* whole = nullptr;
  int count = 0;
  // Of the elements on both sides. Where nothing is done to them they are bytes, whatever they are.
  DataType in_pieces = DataType::opaque;
  DataType in_whole = DataType::opaque;
  bool scales = false;
  std::int64_t divisor = 0;  // 0: none
};
static_assert(sizeof(Packing) <= 4096);

// What the host knows of a piece that lies in its own type.
inline std::size_t bytes_of_piece(const Packing& all, int piece) {
  const std::size_t bytes = all.begins[piece + 1] - all.begins[piece];
  return all.in_pieces == all.in_whole ? bytes : bytes / size_of(all.in_whole) * size_of(all.in_pieces);
}

// What happens to the elements of one piece: first they are multiplied, then divided.
struct Change {
  bool scales;
  double factor;
  std::int64_t divisor;
};

// The piece in which a place of the whole lies.
LOCKSTEP_BOTH int piece_at(const Packing& all, std::size_t at) {
  int first = 0;
  for (int last = all.count; last - first > 1;) {
    const int middle = (first + last) / 2;
    (all.begins[middle] <= at ? first : last) = middle;
  }
  return first;
}

LOCKSTEP_BOTH bool is_aligned(const std::byte* place, std::size_t to) {
  return reinterpret_cast<std::uintptr_t>(place) % to == 0;
}

// As many bytes as both places are aligned to and as are left, up to a vector.
template <class Word>
LOCKSTEP_BOTH bool copy_word(std::byte* to, const std::byte* from, std::size_t left) {
  if (left < sizeof(Word) || !is_aligned(to, sizeof(Word)) || !is_aligned(from, sizeof(Word))) return false;
  *reinterpret_cast<Word*>(to) = *reinterpret_cast<const Word*>(from);
  return true;
}

// Ways from one side to the other: `some` moves as many elements at once as it can, and returns how many.
struct AsIs {
  static constexpr unsigned from_shift = 0;  // of the bytes of an element, as a power of two
  static constexpr unsigned to_shift = 0;
  static constexpr std::size_t lanes = vector_bytes;

  LOCKSTEP_BOTH static std::size_t some(std::byte* to, const std::byte* from, std::size_t left,
                                        const Change& /*none*/) {
    using Vector = Lanes<std::uint32_t, 4>;
    if (copy_word<Vector>(to, from, left)) return sizeof(Vector);
    if (copy_word<std::uint64_t>(to, from, left)) return sizeof(std::uint64_t);
    if (copy_word<std::uint32_t>(to, from, left)) return sizeof(std::uint32_t);
    if (copy_word<std::uint16_t>(to, from, left)) return sizeof(std::uint16_t);
    *to = *from;
    return 1;
  }
};

// From one format to another, or the same, with what happens to elements on the way.
template <class From, class To>
struct Recast {
  using Read = typename From::Stored;
  using Written = typename To::Stored;
  static constexpr unsigned from_shift = std::countr_zero(sizeof(Read));
  static constexpr unsigned to_shift = std::countr_zero(sizeof(Written));
  static constexpr std::size_t lanes =
      vector_bytes / (sizeof(Read) > sizeof(Written) ? sizeof(Read) : sizeof(Written));  // a vector on the wider side

  LOCKSTEP_BOTH static Written one(Read value, const Change& change) {
    if constexpr (std::is_same_v<From, To>) {
      if (change.scales) value = From::scale(value, change.factor);
      if (change.divisor != 0) value = From::divide(value, change.divisor);
      return value;
    } else {
      // In the wider of the two; rounded once.
      using Wide = std::conditional_t<(sizeof(typename From::Wide) > sizeof(typename To::Wide)), typename From::Wide,
                                      typename To::Wide>;
      Wide wide;
      if constexpr (std::is_same_v<Wide, typename From::Wide>)
        wide = From::load(value);
      else
        wide = to_double(From::load(value));
      if (change.scales) wide = Float<Wide>::scale(wide, change.factor);
      if (change.divisor != 0) wide = Float<Wide>::divide(wide, change.divisor);
      if constexpr (std::is_same_v<Wide, typename To::Wide>)
        return To::convert(wide);
      else
        return To::convert(to_float(wide));
    }
  }

  template <std::size_t at_once = lanes>
  LOCKSTEP_BOTH static std::size_t some(std::byte* to, const std::byte* from, std::size_t left, const Change& change) {
    using In = Lanes<Read, at_once>;
    using Out = Lanes<Written, at_once>;
    if constexpr (at_once > 1) {
      if (left < at_once || !is_aligned(to, sizeof(Out)) || !is_aligned(from, sizeof(In)))
        return some<at_once / 2>(to, from, left, change);
      const In in = *reinterpret_cast<const In*>(from);
      Out out;
      for (std::size_t i = 0; i < at_once; ++i) out.at[i] = one(in.at[i], change);
      *reinterpret_cast<Out*>(to) = out;
    } else {
      Read in;
      if (is_aligned(from, alignof(Read)))
        in = *reinterpret_cast<const Read*>(from);
      else
        memcpy(&in, from, sizeof in);
      const Written out = one(in, change);
      if (is_aligned(to, alignof(Written)))
        *reinterpret_cast<Written*>(to) = out;
      else
        memcpy(to, &out, sizeof out);
    }
    return at_once;
  }
};

// The part of one thread of so many: every so-manieth vector of the whole.
template <class Way>
LOCKSTEP_BOTH void pack_thread(const Packing& all, bool packs, std::size_t thread, std::size_t threads) {
  const unsigned in_whole = packs ? Way::to_shift : Way::from_shift;
  const unsigned in_piece = packs ? Way::from_shift : Way::to_shift;
  const std::size_t step = Way::lanes << in_whole;
  const std::size_t bytes = all.begins[all.count];
  for (std::size_t vector = thread; vector * step < bytes; vector += threads) {
    std::size_t at = vector * step;
    const std::size_t end = at + step < bytes ? at + step : bytes;
    for (int piece = piece_at(all, at); at < end;) {
      while (all.begins[piece + 1] <= at) ++piece;  // some are empty
      std::byte* const inside = all.pieces[piece] + ((at - all.begins[piece]) >> in_whole << in_piece);
      std::byte* const outside = all.whole + at;
      const std::size_t left = ((all.begins[piece + 1] < end ? all.begins[piece + 1] : end) - at) >> in_whole;
      const Change change{all.scales, all.scales ? all.factors[piece] : 1, all.divisor};
      at += Way::some(packs ? outside : inside, packs ? inside : outside, left, change) << in_whole;
    }
  }
}

// So many vectors are to be moved.
template <class Way>
std::size_t vectors_of(const Packing& all, bool packs) {
  const std::size_t step = Way::lanes << (packs ? Way::to_shift : Way::from_shift);
  return (all.begins[all.count] + step - 1) / step;
}

// Calls `use` with the way from side to side; false where there is none. Floats of 32 bits become those of 16 and 64
// bits, and back.
template <class Use>
bool with_way(const Packing& all, bool packs, const Use& use) {
  const DataType from = packs ? all.in_pieces : all.in_whole;
  const DataType to = packs ? all.in_whole : all.in_pieces;
  if (from == to && !all.scales && all.divisor == 0) return use(AsIs()), true;
  bool is_known = false;
  if (from == to) {
    with_format(from, [&]<class F>(F) {
      if constexpr (requires(typename F::Stored value) { F::scale(value, 1.0); }) {
        use(Recast<F, F>());
        is_known = true;
      }
    });
    return is_known;
  }
  if (from != DataType::f32 && to != DataType::f32) return false;
  with_format(from == DataType::f32 ? to : from, [&]<class F>(F) {
    if constexpr (requires(typename F::Wide wide) { F::convert(wide); }) {
      if (from == DataType::f32)
        use(Recast<Float<float>, F>());
      else
        use(Recast<F, Float<float>>());
      is_known = true;
    }
  });
  return is_known;
}

}  // namespace lockstep::gpu
