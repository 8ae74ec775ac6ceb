// SPDX-License-Identifier: Apache-2.0
// Holds the work of one GPU thread that packs many tensors into one stretch of memory, or unpacks them again. Elements
// may be multiplied, divided, and converted between float widths on the way. The host's compiler takes this file, too,
// so tests run it without a GPU.
#pragma once

#include <bit>
#include <cstddef>

#include "collectives/gpu/combining.hpp"

namespace lockstep::gpu {

// Limits the pieces of one launch, because a launch's arguments have 4 KiB.
inline constexpr int most_pieces = 120;

// Describes one launch: `count` pieces, and the `whole` that they are packed into or unpacked from. The caller keeps
// all memory until the launch is done.
struct PackArguments {
  // NOLINTBEGIN(modernize-avoid-c-arrays): std::array's functions are the host's
  std::byte* pieces[most_pieces];
  // Holds the offset of each piece in the whole, in bytes, and the end of the last piece.
  std::size_t begins[most_pieces + 1];
  // Holds a factor for each piece, read only if `scales`.
  double factors[most_pieces];
  // NOLINTEND(modernize-avoid-c-arrays)
  std::byte* whole = nullptr;
  int count = 0;
  // Name the element type on each side. If elements are only copied, both are equal and any type will do.
  DataType in_pieces = DataType::opaque;
  DataType in_whole = DataType::opaque;
  bool scales = false;
  std::int64_t divisor = 0;  // 0: no division
};
static_assert(sizeof(PackArguments) <= 4096);

// Returns the bytes of a piece in its own type; `begins` counts in bytes of the whole's type.
inline std::size_t bytes_of_piece(const PackArguments& all, int piece) {
  const std::size_t bytes = all.begins[piece + 1] - all.begins[piece];
  return all.in_pieces == all.in_whole ? bytes : bytes / size_of(all.in_whole) * size_of(all.in_pieces);
}

// Holds the scaling of one piece's elements: they are multiplied first, then divided.
template <class Divisor>
struct ElementScaling {
  bool scales;
  double factor;
  Divisor divisor;
};

// Returns the piece that holds byte `at` of the whole.
LOCKSTEP_BOTH int piece_at(const PackArguments& all, std::size_t at) {
  int first = 0;
  for (int last = all.count; last - first > 1;) {
    const int middle = (first + last) / 2;
    (all.begins[middle] <= at ? first : last) = middle;
  }
  return first;
}

// True if the address is a multiple of `to` bytes.
LOCKSTEP_BOTH bool is_aligned(const std::byte* place, std::size_t to) {
  return reinterpret_cast<std::uintptr_t>(place) % to == 0;
}

// Copies one Word if both addresses are aligned to it and at least so many bytes are left. Returns false, and copies
// nothing, otherwise.
template <class Word>
LOCKSTEP_BOTH bool copy_word(std::byte* to, const std::byte* from, std::size_t left) {
  if (left < sizeof(Word) || !is_aligned(to, sizeof(Word)) || !is_aligned(from, sizeof(Word))) return false;
  *reinterpret_cast<Word*>(to) = *reinterpret_cast<const Word*>(from);
  return true;
}

// Holds the two ends of one copy.
struct CopyAddresses {
  std::byte* to;
  const std::byte* from;
  template <class Out, class In>
  LOCKSTEP_BOTH bool is_aligned() const {
    return gpu::is_aligned(to, sizeof(Out)) && gpu::is_aligned(from, sizeof(In));
  }
};

// Copies bytes without a change. Every copier has `some`, which moves as many elements at once as it can and returns
// their number, and `two`, which moves two vectors.
struct PlainCopy {
  // Give the bytes of an element as a power of two.
  static constexpr unsigned from_shift = 0;
  static constexpr unsigned to_shift = 0;
  static constexpr std::size_t lanes = vector_bytes;
  using ElementDivisor = DivisorOf<PlainCopy>;
  using Scaling = ElementScaling<NoDivisor>;

  LOCKSTEP_BOTH static std::size_t some(std::byte* to, const std::byte* from, std::size_t left,
                                        const Scaling& /*none*/) {
    using Vector = Lanes<std::uint32_t, 4>;
    if (copy_word<Vector>(to, from, left)) return sizeof(Vector);
    if (copy_word<std::uint64_t>(to, from, left)) return sizeof(std::uint64_t);
    if (copy_word<std::uint32_t>(to, from, left)) return sizeof(std::uint32_t);
    if (copy_word<std::uint16_t>(to, from, left)) return sizeof(std::uint16_t);
    *to = *from;
    return 1;
  }

  // Reads two vectors before it writes either, so that more reads are under way. Returns false, and does nothing, if
  // `one` is not aligned to vectors; `other` is always aligned alike.
  LOCKSTEP_BOTH static bool two(const CopyAddresses& one, const CopyAddresses& other, const Scaling& /*none*/) {
    using Vector = Lanes<std::uint32_t, 4>;
    if (!one.is_aligned<Vector, Vector>()) return false;
    const Vector first = *reinterpret_cast<const Vector*>(one.from);
    const Vector second = *reinterpret_cast<const Vector*>(other.from);
    *reinterpret_cast<Vector*>(one.to) = first;
    *reinterpret_cast<Vector*>(other.to) = second;
    return true;
  }
};

// Moves elements from one format to another, or to the same one, and scales and divides them on the way.
template <class From, class To, DivisionMode dividing>
struct ConvertingCopy {
  using Read = typename From::Stored;
  using Written = typename To::Stored;
  static constexpr unsigned from_shift = std::countr_zero(sizeof(Read));
  static constexpr unsigned to_shift = std::countr_zero(sizeof(Written));
  // Moves a full vector on the side of the wider elements.
  static constexpr std::size_t lanes = vector_bytes / (sizeof(Read) > sizeof(Written) ? sizeof(Read) : sizeof(Written));
  // Calculates in the wider of the two formats, so results are rounded once.
  using Wide = std::conditional_t<(sizeof(typename From::Wide) > sizeof(typename To::Wide)), typename From::Wide,
                                  typename To::Wide>;
  using Divided = std::conditional_t<std::is_same_v<From, To>, From, FloatFormat<Wide>>;
  using ElementDivisor = DivisorOf<Divided>;
  using Scaling = ElementScaling<typename ElementDivisor::Type>;

  // Divides quickly if `is_right` is given, and sets it to false if the quotient may be wrong.
  template <class Value>
  LOCKSTEP_BOTH static Value divided(Value value, const Scaling& scaling, [[maybe_unused]] bool* is_right) {
    if constexpr (dividing == DivisionMode::exactly)
      return Divided::divide_exactly(value, scaling.divisor);
    else if constexpr (dividing == DivisionMode::by_any)
      return Divided::divide(value, scaling.divisor, is_right);
    else
      return value;
  }

  // Scales, divides and converts one element.
  LOCKSTEP_BOTH static Written one(Read value, const Scaling& scaling, bool* is_right = nullptr) {
    if constexpr (std::is_same_v<From, To>) {
      if (scaling.scales) value = From::scale(value, scaling.factor);
      return divided(value, scaling, is_right);
    } else {
      Wide wide;
      if constexpr (std::is_same_v<Wide, typename From::Wide>)
        wide = From::load(value);
      else
        wide = to_double(From::load(value));
      if (scaling.scales) wide = FloatFormat<Wide>::scale(wide, scaling.factor);
      wide = divided(wide, scaling, is_right);
      if constexpr (std::is_same_v<Wide, typename To::Wide>)
        return To::convert(wide);
      else
        return To::convert(to_float(wide));
    }
  }

  // Returns false, and writes nothing, if the addresses are not aligned or a quotient was not found quickly.
  LOCKSTEP_BOTH static bool two(const CopyAddresses& first, const CopyAddresses& second, const Scaling& scaling) {
    using In = Lanes<Read, lanes>;
    using Out = Lanes<Written, lanes>;
    if (!first.is_aligned<Out, In>()) return false;
    const In in = *reinterpret_cast<const In*>(first.from);
    const In more_in = *reinterpret_cast<const In*>(second.from);
    Out out;
    Out more_out;
    bool is_right = true;
    for (std::size_t i = 0; i < lanes; ++i) out.at[i] = one(in.at[i], scaling, &is_right);
    for (std::size_t i = 0; i < lanes; ++i) more_out.at[i] = one(more_in.at[i], scaling, &is_right);
    if (!is_right) return false;
    *reinterpret_cast<Out*>(first.to) = out;
    *reinterpret_cast<Out*>(second.to) = more_out;
    return true;
  }

  // Moves `at_once` elements if alignment and `left` allow it, and half as many otherwise; returns the number moved.
  template <std::size_t at_once = lanes>
  LOCKSTEP_BOTH static std::size_t some(std::byte* to, const std::byte* from, std::size_t left,
                                        const Scaling& scaling) {
    using In = Lanes<Read, at_once>;
    using Out = Lanes<Written, at_once>;
    if constexpr (at_once > 1) {
      if (left < at_once || !is_aligned(to, sizeof(Out)) || !is_aligned(from, sizeof(In)))
        return some<at_once / 2>(to, from, left, scaling);
      const In in = *reinterpret_cast<const In*>(from);
      Out out;
      for (std::size_t i = 0; i < at_once; ++i) out.at[i] = one(in.at[i], scaling);
      *reinterpret_cast<Out*>(to) = out;
    } else {
      Read in;
      if (is_aligned(from, alignof(Read)))
        in = *reinterpret_cast<const Read*>(from);
      else
        memcpy(&in, from, sizeof in);
      const Written out = one(in, scaling);
      if (is_aligned(to, alignof(Written)))
        *reinterpret_cast<Written*>(to) = out;
      else
        memcpy(to, &out, sizeof out);
    }
    return at_once;
  }
};

// Moves vectors of the whole to or from the pieces; a vector may span several pieces.
template <class Copier>
struct PieceCopier {
  static constexpr unsigned to_shift = Copier::to_shift;
  static constexpr unsigned from_shift = Copier::from_shift;
  const PackArguments& all;
  bool packs;
  typename Copier::Scaling scaling;

  // Takes the launch's arguments, which it refers to, and the direction: true packs.
  LOCKSTEP_BOTH PieceCopier(const PackArguments& given, bool there)
      : all(given), packs(there), scaling{all.scales, 1, Copier::ElementDivisor::of(all.divisor)} {}

  // These count in bytes of the whole: the shift of an element, the length of a vector, and the length of it all.
  LOCKSTEP_BOTH unsigned in_whole() const { return packs ? to_shift : from_shift; }
  LOCKSTEP_BOTH std::size_t step() const { return Copier::lanes << in_whole(); }
  LOCKSTEP_BOTH std::size_t bytes() const { return all.begins[all.count]; }

  // Returns the two ends of a copy at byte `place` of the whole, which lies in this piece.
  LOCKSTEP_BOTH CopyAddresses at(int piece, std::size_t place) const {
    const unsigned in_piece = packs ? from_shift : to_shift;
    std::byte* const inside = all.pieces[piece] + ((place - all.begins[piece]) >> in_whole() << in_piece);
    std::byte* const outside = all.whole + place;
    return packs ? CopyAddresses{outside, inside} : CopyAddresses{inside, outside};
  }

  // Moves one vector of the whole, by its index; an index past the end moves nothing.
  LOCKSTEP_BOTH void move(std::size_t vector) {
    std::size_t place = vector * step();
    const std::size_t end = place + step() < bytes() ? place + step() : bytes();
    for (int piece = place < end ? piece_at(all, place) : 0; place < end;) {
      while (all.begins[piece + 1] <= place) ++piece;  // a piece may be empty
      const CopyAddresses addresses = at(piece, place);
      const std::size_t left = ((all.begins[piece + 1] < end ? all.begins[piece + 1] : end) - place) >> in_whole();
      if (all.scales) scaling.factor = all.factors[piece];
      place += Copier::some(addresses.to, addresses.from, left, scaling) << in_whole();
    }
  }

  // Moves two vectors at once if both lie in one piece and are aligned. Returns false, and does nothing, otherwise.
  LOCKSTEP_BOTH bool move_two(std::size_t vector, std::size_t other) {
    const std::size_t place = vector * step();
    const std::size_t end = other * step() + step();
    const int piece = piece_at(all, place);
    if (all.begins[piece] > place || all.begins[piece + 1] < end) return false;
    if (all.scales) scaling.factor = all.factors[piece];
    return Copier::two(at(piece, place), at(piece, other * step()), scaling);
  }
};

// Counts the neighbouring vectors that threads move together; it equals the threads of a block (kernels.cu).
inline constexpr std::size_t moved_together = 256;

// Does the share of one thread among `threads`. Neighbouring threads move neighbouring vectors, and each thread moves
// two at once. Otherwise too few reads are under way to keep the memory busy.
template <class Copier>
LOCKSTEP_BOTH void pack_thread(const PackArguments& all, bool packs, std::size_t thread, std::size_t threads) {
  PieceCopier<Copier> copier(all, packs);
  const std::size_t vectors = (copier.bytes() + copier.step() - 1) / copier.step();
  for (std::size_t i = thread; i / moved_together * 2 * moved_together < vectors; i += threads) {
    const std::size_t vector = i / moved_together * 2 * moved_together + i % moved_together;
    if (copier.move_two(vector, vector + moved_together)) continue;
    copier.move(vector);
    copier.move(vector + moved_together);
  }
}

// Returns the number of threads that have something to move.
template <class Copier>
std::size_t threads_of(const PackArguments& all, bool packs) {
  const std::size_t chunk = 2 * moved_together * (Copier::lanes << (packs ? Copier::to_shift : Copier::from_shift));
  return (all.begins[all.count] + chunk - 1) / chunk * moved_together;
}

// Calls `use` with the copier for this launch. Returns false, without a call, if there is none: f32 converts to and
// from 16-bit floats and f64 only.
template <class Use>
bool with_copier(const PackArguments& all, bool packs, const Use& use) {
  const DataType from = packs ? all.in_pieces : all.in_whole;
  const DataType to = packs ? all.in_whole : all.in_pieces;
  if (from == to && !all.scales && all.divisor == 0) return use(PlainCopy()), true;
  bool is_known = false;
  const auto use_recast = [&]<class From, class To>(From, To) {
    with_dividing<typename ConvertingCopy<From, To, DivisionMode::none>::Divided>(
        all.divisor, [&]<DivisionMode dividing>(std::integral_constant<DivisionMode, dividing>) {
          use(ConvertingCopy<From, To, dividing>());
        });
    is_known = true;
  };
  if (from == to) {
    with_format(from, [&]<class F>(F) {
      if constexpr (requires(typename F::Stored value) { F::scale(value, 1.0); }) use_recast(F(), F());
    });
    return is_known;
  }
  if (from != DataType::f32 && to != DataType::f32) return false;
  with_format(from == DataType::f32 ? to : from, [&]<class F>(F) {
    if constexpr (requires(typename F::Wide wide) { F::convert(wide); }) {
      if (from == DataType::f32)
        use_recast(FloatFormat<float>(), F());
      else
        use_recast(F(), FloatFormat<float>());
    }
  });
  return is_known;
}

}  // namespace lockstep::gpu
