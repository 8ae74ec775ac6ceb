// SPDX-License-Identifier: Apache-2.0
// What one thread of a GPU does where many tensors become one stretch of memory, or one stretch becomes many. The
// host's compiler takes it, too.
#pragma once

#include <cstddef>

#include "collectives/gpu/combining.hpp"

namespace lockstep::gpu {

inline constexpr int most_pieces = 120;  // with one launch: what is handed to the GPU has 4 KiB

struct Packing {
  // NOLINTBEGIN(modernize-avoid-c-arrays): std::array's functions are the host's
  std::byte* pieces[most_pieces];
  std::size_t begins[most_pieces + 1];  // in the whole, of each piece and of what comes behind the last
  // NOLINTEND(modernize-avoid-c-arrays)
  std::byte* whole = nullptr;
  int count = 0;
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

// As many bytes as both places are aligned to and as are left, up to a vector.
template <class Word>
LOCKSTEP_BOTH bool copy_word(std::byte* to, const std::byte* from, std::size_t left) {
  const auto places = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  if (left < sizeof(Word) || places % sizeof(Word) != 0) return false;
  *reinterpret_cast<Word*>(to) = *reinterpret_cast<const Word*>(from);
  return true;
}

LOCKSTEP_BOTH std::size_t copy_some(std::byte* to, const std::byte* from, std::size_t left) {
  using Vector = Lanes<std::uint32_t, 4>;
  if (copy_word<Vector>(to, from, left)) return sizeof(Vector);
  if (copy_word<std::uint64_t>(to, from, left)) return sizeof(std::uint64_t);
  if (copy_word<std::uint32_t>(to, from, left)) return sizeof(std::uint32_t);
  if (copy_word<std::uint16_t>(to, from, left)) return sizeof(std::uint16_t);
  *to = *from;
  return 1;
}

// The part of one thread of so many: every so-manieth vector of the whole.
template <bool packs>
LOCKSTEP_BOTH void pack_thread(const Packing& all, std::size_t thread, std::size_t threads) {
  const std::size_t bytes = all.begins[all.count];
  for (std::size_t vector = thread; vector * vector_bytes < bytes; vector += threads) {
    std::size_t at = vector * vector_bytes;
    const std::size_t end = at + vector_bytes < bytes ? at + vector_bytes : bytes;
    for (int piece = piece_at(all, at); at < end;) {
      while (all.begins[piece + 1] <= at) ++piece;  // some are empty
      std::byte* const inside = all.pieces[piece] + (at - all.begins[piece]);
      const std::size_t left = (all.begins[piece + 1] < end ? all.begins[piece + 1] : end) - at;
      at += packs ? copy_some(all.whole + at, inside, left) : copy_some(inside, all.whole + at, left);
    }
  }
}

}  // namespace lockstep::gpu
