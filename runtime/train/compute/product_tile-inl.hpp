// SPDX-License-Identifier: Apache-2.0
// Multiplies one tile: some rows of the left operand with a panel of the right one, whose sums stay in registers. The
// left operand's numbers are broadcast from where they lie, so most of them are never packed.
#if defined(LOCKSTEP_TRAIN_PRODUCT_TILE) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_TRAIN_PRODUCT_TILE
#undef LOCKSTEP_TRAIN_PRODUCT_TILE
#else
#define LOCKSTEP_TRAIN_PRODUCT_TILE
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <utility>

#include "runtime/train/compute/matrix_product.hpp"
#include "runtime/train/compute/part_vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::train::compute::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Gives the length of the sums that start from zero. It decides about bits.
inline constexpr std::size_t depth_block = 256;

// Gives the vectors of a panel, and the rows of the largest tile: their products, and one row more, fit into the
// registers. AVX-512 and Neon have 32, the others 16.
inline constexpr std::size_t panel_vectors = 2;
template <class T>
inline constexpr std::size_t max_tile_rows = sizeof(T) == 8                                 ? 4
                                             : (HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64) ? 14
                                                                                            : 6;

template <class T>
HWY_INLINE std::size_t panel_width() {
  return panel_vectors * hn::Lanes(hn::ScalableTag<T>());
}

// Is a part of the depth in which the left operand's elements lie at a constant distance.
struct DepthRun {
  std::size_t offset = 0;
  std::size_t length = 0;
};

// Asks for a line that is needed after more than the first cache holds.
HWY_INLINE void prefetch_to_second_cache(const void* line) { __builtin_prefetch(line, 0, 2); }

// Refers to tiles of as many rows of the left operand in a block of depth, one after the other. If rows are adjacent,
// element (row, k) of a run lies at data[offset + row + k * step]; otherwise at data[offset + row * step + k].
template <class T>
struct LeftTiles {
  const T* data = nullptr;
  std::size_t step = 0;
  const DepthRun* runs = nullptr;
  std::size_t run_count = 0;
  std::size_t tiles = 1;
  std::size_t advance = 0;  // elements from a tile to the next
};

// Refers to some columns of the right operand in a block of depth: whole vectors, readable beyond the last column.
template <class T>
struct RightPanel {
  const T* data = nullptr;
  std::size_t stride = 0;
};

// Refers to a tile of the target. `bias` begins at the tile's first column.
template <class T>
struct TargetTile {
  T* data = nullptr;
  std::size_t stride = 0;
  std::size_t columns = 0;
  ProductEnding<T> ending;
};

// Gives the address that a tile asks the cache for first, and its distance from the next. There is one for each number
// of the depth, so that the processor is never flooded. Adjacent rows are asked for in the first cache, since they are
// packed next, and others in the second. Without this the tutorial's dense layer took up to 1.25 times as long (Zen 4).
template <class T>
struct UpcomingLines {
  const T* data = nullptr;
  std::size_t step = 0;
  std::size_t advance = 0;  // from a tile to the next
};

template <class T>
using TileFunction = void (*)(const LeftTiles<T>&, const RightPanel<T>&, const TargetTile<T>&, const UpcomingLines<T>&);

template <class T, std::size_t rows, std::size_t vectors>
class Tile {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

 public:
  template <bool is_adjacent>
  static HWY_NOINLINE void multiply(const LeftTiles<T>& left, const RightPanel<T>& right, const TargetTile<T>& target,
                                    const UpcomingLines<T>& upcoming) {
    TargetTile<T> to = target;
    const T* from = left.data;
    const T* soon = upcoming.data;
    for (std::size_t tile = 0; tile < left.tiles; ++tile) {
      multiply_one<is_adjacent>(from, left, right, to, soon, upcoming.step);
      from += left.advance;
      to.data += rows * to.stride;
      soon += upcoming.advance;
    }
  }

 private:
  template <bool is_adjacent>
  static HWY_INLINE void multiply_one(const T* from_left, const LeftTiles<T>& left, const RightPanel<T>& right,
                                      const TargetTile<T>& target, const T* soon, std::size_t soon_step) {
    const D d;
    V sums[rows][vectors];
    HWY_UNROLL(16) for (std::size_t i = 0; i < rows; ++i) {
      HWY_UNROLL(16) for (std::size_t v = 0; v < vectors; ++v) sums[i][v] = hn::Zero(d);
    }
    const T* from_right = right.data;
    TargetLines target_lines{target.data, target.stride};
    for (std::size_t r = 0; r < left.run_count; ++r) {
      const DepthRun& run = left.runs[r];
      if constexpr (is_adjacent)
        add_adjacent(sums, from_left + run.offset, left.step, run.length, from_right, right.stride, soon, soon_step,
                     target_lines);
      else
        add_strided(sums, from_left + run.offset, left.step, run.length, from_right, right.stride, soon, soon_step,
                    target_lines);
      from_right += run.length * right.stride;
    }
    write(sums, target);
  }

  // Asks the cache for the target, four rows at a time, before it is written.
  struct TargetLines {
    const T* data;
    std::size_t stride;
    std::size_t row = 0;
  };
  static HWY_INLINE void prefetch_target(TargetLines& target) {
    for (std::size_t i = 0; i < 4 && target.row < rows; ++i, ++target.row) {
      const T* at = target.data + target.row * target.stride;
      HWY_UNROLL(16) for (std::size_t v = 0; v < vectors; ++v) hwy::Prefetch(at + v * hn::Lanes(D()));
    }
  }

  static HWY_INLINE void add_adjacent(V (&sums)[rows][vectors], const T* left, std::size_t step, std::size_t length,
                                      const T* right, std::size_t stride, const T*& soon, std::size_t soon_step,
                                      TargetLines& target) {
    const D d;
    for (std::size_t k = 0; k < length; ++k) {
      if (k % 16 == 15) prefetch_target(target);
      V columns[vectors];
      HWY_UNROLL(16) for (std::size_t v = 0; v < vectors; ++v) columns[v] = hn::LoadU(d, right + v * hn::Lanes(d));
      hwy::Prefetch(soon);
      soon += soon_step;
      HWY_UNROLL(16) for (std::size_t i = 0; i < rows; ++i) {
        const V number = hn::Set(d, left[i]);
        HWY_UNROLL(16)
        for (std::size_t v = 0; v < vectors; ++v) sums[i][v] = hn::MulAdd(number, columns[v], sums[i][v]);
      }
      left += step;
      right += stride;
    }
  }

  // Reads three rows by one pointer, since the processor has few registers for pointers.
  static HWY_INLINE void add_strided(V (&sums)[rows][vectors], const T* left, std::size_t step, std::size_t length,
                                     const T* right, std::size_t stride, const T*& soon, std::size_t soon_step,
                                     TargetLines& target) {
    const D d;
    constexpr std::size_t groups = (rows + 2) / 3;
    const T* from[groups];
    HWY_UNROLL(16) for (std::size_t g = 0; g < groups; ++g) from[g] = left + 3 * g * step;
    for (std::size_t k = 0; k < length; ++k) {
      if (k % 16 == 15) prefetch_target(target);
      V columns[vectors];
      HWY_UNROLL(16) for (std::size_t v = 0; v < vectors; ++v) columns[v] = hn::LoadU(d, right + v * hn::Lanes(d));
      prefetch_to_second_cache(soon);

      soon += soon_step;
      HWY_UNROLL(16) for (std::size_t i = 0; i < rows; ++i) {
        const V number = hn::Set(d, from[i / 3][(i % 3) * step]);
        HWY_UNROLL(16)
        for (std::size_t v = 0; v < vectors; ++v) sums[i][v] = hn::MulAdd(number, columns[v], sums[i][v]);
      }
      HWY_UNROLL(16) for (std::size_t g = 0; g < groups; ++g)++ from[g];
      right += stride;
    }
  }

  static HWY_INLINE void write(V (&sums)[rows][vectors], const TargetTile<T>& target) {
    const ProductEnding<T>& ending = target.ending;
    const bool finishes = ending.bias != nullptr || ending.relu;
    if (target.columns < vectors * hn::Lanes(D())) {
      ending.adds ? write_part<true>(sums, target) : write_part<false>(sums, target);
    } else if (finishes) {
      ending.adds ? write_whole<true, true>(sums, target) : write_whole<false, true>(sums, target);
    } else {
      ending.adds ? write_whole<true, false>(sums, target) : write_whole<false, false>(sums, target);
    }
  }

  template <bool adds, bool finishes>
  static HWY_INLINE void write_whole(V (&sums)[rows][vectors], const TargetTile<T>& target) {
    const D d;
    const V limit = relu_limit(target.ending.relu);
    T* to = target.data;
    V bias[vectors];
    HWY_UNROLL(16) for (std::size_t v = 0; v < vectors; ++v) {
      bias[v] =
          target.ending.bias == nullptr ? hn::Set(d, T{-0.0}) : hn::LoadU(d, target.ending.bias + v * hn::Lanes(d));
    }
    HWY_UNROLL(16) for (std::size_t i = 0; i < rows; ++i, to += target.stride) {
      HWY_UNROLL(16) for (std::size_t v = 0; v < vectors; ++v) {
        V sum = sums[i][v];
        if constexpr (adds) sum = hn::Add(hn::LoadU(d, to + v * hn::Lanes(d)), sum);
        if constexpr (finishes) sum = finish(sum, bias[v], limit);
        hn::StoreU(sum, d, to + v * hn::Lanes(d));
      }
    }
  }

  // Writes a tile whose last vector has columns beyond the target.
  template <bool adds>
  static HWY_INLINE void write_part(V (&sums)[rows][vectors], const TargetTile<T>& target) {
    const D d;
    const V limit = relu_limit(target.ending.relu);
    HWY_UNROLL(16) for (std::size_t v = 0; v < vectors; ++v) {
      const std::size_t first = v * hn::Lanes(d);
      const std::size_t used = std::min(target.columns - first, hn::Lanes(d));
      const V bias =
          target.ending.bias == nullptr ? hn::Set(d, T{-0.0}) : load_part(d, target.ending.bias + first, used);
      T* to = target.data + first;
      HWY_UNROLL(16) for (std::size_t i = 0; i < rows; ++i, to += target.stride) {
        V sum = sums[i][v];
        if constexpr (adds) sum = hn::Add(load_part(d, to, used), sum);
        store_part(finish(sum, bias, limit), d, to, used);
      }
    }
  }

  // Returns the greatest number that relu replaces; NaN, which nothing is at most, if there is no relu.
  static HWY_INLINE V relu_limit(bool has_relu) {
    return hn::Set(D(), has_relu ? T{0} : std::numeric_limits<T>::quiet_NaN());
  }
  // Adds the bias, which is -0 if there is none: that changes no number.
  static HWY_INLINE V finish(V sum, V bias, V limit) {
    sum = hn::Add(sum, bias);
    return hn::IfThenZeroElse(hn::Le(sum, limit), sum);
  }
};

// Holds the functions for each number of rows, from 1.
template <class T, std::size_t vectors, bool is_adjacent, std::size_t... before>
constexpr std::array<TileFunction<T>, sizeof...(before)> tile_functions(std::index_sequence<before...> /*rows - 1*/) {
  return {&Tile<T, before + 1, vectors>::template multiply<is_adjacent>...};
}

// Returns the function for a tile.
template <class T>
TileFunction<T> tile_function(std::size_t rows, std::size_t vectors, bool is_adjacent) {
  using Rows = std::make_index_sequence<max_tile_rows<T>>;
  static constexpr std::array<std::array<TileFunction<T>, max_tile_rows<T>>, 4> functions{
      tile_functions<T, 1, false>(Rows()), tile_functions<T, 1, true>(Rows()), tile_functions<T, 2, false>(Rows()),
      tile_functions<T, 2, true>(Rows())};
  return functions[(vectors - 1) * 2 + (is_adjacent ? 1 : 0)][rows - 1];
}

}  // namespace lockstep::train::compute::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
