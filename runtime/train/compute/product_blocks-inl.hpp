// SPDX-License-Identifier: Apache-2.0
// Multiplies a block of rows with a block of depth, tile by tile. Matrices and convolutions share it: they differ in
// how the left operand lies in memory.
#if defined(LOCKSTEP_TRAIN_PRODUCT_BLOCKS) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_TRAIN_PRODUCT_BLOCKS
#undef LOCKSTEP_TRAIN_PRODUCT_BLOCKS
#else
#define LOCKSTEP_TRAIN_PRODUCT_BLOCKS
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>

#include "runtime/train/compute/matrix_product.hpp"
#include "runtime/train/compute/product_tile-inl.hpp"
#include "runtime/train/compute/scratch.hpp"
#include "runtime/train/compute/transpose-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::train::compute::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Limits the columns whose block of depth is read for each tile of rows: 256 x 512 floats are half of a common second
// cache.
inline constexpr std::size_t column_block = 512;

// Is an interval of columns or of depth.
struct BlockRange {
  std::size_t first = 0;
  std::size_t length = 0;
};

// Refers to a block of the right operand: whole panels where they lie or in packed memory, the rest always packed,
// since panels are readable beyond the last column. Packed panels lie one after the other, each depth x width.
template <class T>
struct RightBlock {
  const T* direct = nullptr;
  std::size_t direct_stride = 0;
  std::size_t direct_columns = 0;
  const T* next = nullptr;  // the depth that follows, if it lies in the same rows
  const T* packed = nullptr;
  std::size_t depth = 0;
  std::size_t columns = 0;

  HWY_INLINE RightPanel<T> panel(std::size_t column) const {
    if (column < direct_columns) return {direct + column, direct_stride};
    return {packed + (column - direct_columns) * depth, panel_width<T>()};
  }
};

// Packs columns of the right operand into panels. The last panel is filled up with zeros.
template <class T>
void pack_right(const ProductOperand<T>& right, BlockRange depth, BlockRange columns, T* to) {
  const std::size_t width = panel_width<T>();
  for (std::size_t j = 0; j < columns.length; j += width, to += depth.length * width) {
    const std::size_t used = std::min(width, columns.length - j);
    if (used < width) std::fill_n(to, depth.length * width, T{0});
    const std::size_t column = columns.first + j;
    if (right.is_transposed) {
      transpose(right.data + column * right.stride + depth.first, right.stride, used, depth.length, to, width);
    } else {
      const T* from = right.data + depth.first * right.stride + column;
      for (std::size_t k = 0; k < depth.length; ++k) std::copy_n(from + k * right.stride, used, to + k * width);
    }
  }
}

// Returns the elements that packed panels of this many columns need.
template <class T>
std::size_t packed_size(std::size_t depth, std::size_t columns) {
  const std::size_t width = panel_width<T>();
  return (columns + width - 1) / width * width * depth;
}

// Prepares a block of the right operand. `packed` has memory for all of its columns.
template <class T>
RightBlock<T> prepare_right(const ProductOperand<T>& right, BlockRange depth, BlockRange columns, bool is_packed,
                            T* packed) {
  RightBlock<T> block{.depth = depth.length, .columns = columns.length};
  if (!right.is_transposed && !is_packed) {
    const std::size_t lanes = hn::Lanes(hn::ScalableTag<T>());
    block.direct = right.data + depth.first * right.stride + columns.first;
    block.direct_stride = right.stride;
    block.next = block.direct + depth.length * right.stride;  // is only prefetched
    const std::size_t width = columns.length % lanes == 0 ? lanes : panel_width<T>();
    block.direct_columns = columns.length / width * width;
  }
  block.packed = packed;
  const BlockRange rest{columns.first + block.direct_columns, columns.length - block.direct_columns};
  pack_right(right, depth, rest, packed);
  return block;
}

// Refers to a block of rows of the left operand, and to their tiles' memory.
template <class T>
struct LeftRows {
  const T* data = nullptr;
  std::size_t step = 0;
  bool is_adjacent = false;  // as LeftTile's data
  const DepthRun* runs = nullptr;
  std::size_t run_count = 0;
};

// Gives the distance of a packed panel's depths: whole vectors.
template <class T>
HWY_INLINE std::size_t left_panel_step() {
  const std::size_t lanes = hn::Lanes(hn::ScalableTag<T>());
  return (max_tile_rows<T> + lanes - 1) / lanes * lanes;
}

// Copies adjacent rows of the left operand into a panel.
template <class T>
void pack_left(const LeftRows<T>& left, std::size_t first, std::size_t rows, T* to) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t step = left_panel_step<T>();
  for (std::size_t i = 0; i < rows; i += lanes) {
    const std::size_t used = std::min(lanes, rows - i);
    T* column = to + i;
    for (std::size_t r = 0; r < left.run_count; ++r) {
      const T* from = left.data + left.runs[r].offset + first + i;
      for (std::size_t k = 0; k < left.runs[r].length; ++k, from += left.step, column += step)
        hn::Store(load_part(d, from, used), d, column);
    }
  }
}

// Gives the distance of copied rows: a block of depth, and a line more, since rows at a distance of a power of two
// would share few places of the first cache.
template <class T>
inline constexpr std::size_t copied_row_step = depth_block + 64 / sizeof(T);

// Copies rows of the left operand, which has one run.
template <class T>
void copy_left(const LeftRows<T>& left, std::size_t first, std::size_t rows, T* to) {
  const T* from = left.data + left.runs[0].offset + first * left.step;
  for (std::size_t i = 0; i < rows; ++i)
    std::copy_n(from + i * left.step, left.runs[0].length, to + i * copied_row_step<T>);
}

// Limits the packed rows of the left operand, in bytes: a part of a common second cache.
inline constexpr std::size_t packed_group_bytes = std::size_t{64} << 10U;
// Gives the most depth at which all tiles of a group use one panel before the next: a panel then stays in the first
// cache.
inline constexpr std::size_t max_panel_first_depth = 128;

// Is a group of tiles of nearly equal heights: the first `taller` ones have a row more.
struct TileGroup {
  std::size_t first = 0;  // row
  std::size_t rows = 0;
  std::size_t tiles = 0;
  std::size_t height = 0;
  std::size_t taller = 0;

  HWY_INLINE std::size_t row(std::size_t tile) const { return first + tile * height + std::min(tile, taller); }
  HWY_INLINE std::size_t height_of(std::size_t tile) const { return height + (tile < taller ? 1 : 0); }
};

// Multiplies rows of the left operand with a block of the right one. Adjacent rows are packed if several panels use
// them; distant ones are copied, because they would share few places of the first cache.
template <class T>
class RowsProduct {
 public:
  RowsProduct(const LeftRows<T>& left, const RightBlock<T>& right, const ProductTarget<T>& target,
              const ProductEnding<T>& ending)
      : left_(left), right_(right), target_(target), ending_(ending), whole_{0, right.depth} {
    panels_ = (right.columns + width_ - 1) / width_;
    packs_ = left.is_adjacent && panels_ > 1;
    copies_ = !left.is_adjacent && panels_ > 2 && left.run_count == 1 && left.step >= least_distant_step;
    if (!packs_ && !copies_) return;
    tile_size_ =
        packs_ ? left_panel_step<T>() * std::max<std::size_t>(right.depth, 1) : copied_row_step<T> * max_tile_rows<T>;
    group_tiles_ = packs_ ? std::max<std::size_t>(1, packed_group_bytes / (tile_size_ * sizeof(T))) : 1;
    memory_ = scratch<T>(ScratchUse::left_panel, group_tiles_ * tile_size_);
  }

  void multiply(std::size_t rows) {
    const std::size_t tiles = (rows + max_tile_rows<T> - 1) / max_tile_rows<T>;
    const std::size_t groups = group_tiles_ == 0 ? 1 : (tiles + group_tiles_ - 1) / group_tiles_;
    for (std::size_t g = 0; g < groups; ++g) {
      const std::size_t first = g * rows / groups;
      const std::size_t count = (g + 1) * rows / groups - first;
      const std::size_t parts = (count + max_tile_rows<T> - 1) / max_tile_rows<T>;
      group_number_ = g;
      is_last_ = g + 1 == groups;
      multiply_group({first, count, parts, count / parts, count % parts});
    }
  }

 private:
  static constexpr std::size_t least_distant_step = 1024;
  static constexpr std::size_t line = 64 / sizeof(T);

  void multiply_group(const TileGroup& group) {
    for (std::size_t tile = 0; tile < group.tiles; ++tile) {
      if (packs_) pack_left(left_, group.row(tile), group.height_of(tile), memory_ + tile * tile_size_);
      if (copies_) copy_left(left_, group.row(tile), group.height_of(tile), memory_ + tile * tile_size_);
    }
    if (panels_ == 1 || (packs_ && right_.depth <= max_panel_first_depth)) {
      for (std::size_t panel = 0; panel < panels_; ++panel) {
        if (group.taller > 0) multiply_tiles(group, 0, group.taller, panel);
        if (group.taller < group.tiles) multiply_tiles(group, group.taller, group.tiles - group.taller, panel);
      }
      return;
    }
    for (std::size_t tile = 0; tile < group.tiles; ++tile) {
      for (std::size_t panel = 0; panel < panels_; ++panel) multiply_tiles(group, tile, 1, panel);
    }
  }

  // Multiplies tiles of equal heights with a panel.
  void multiply_tiles(const TileGroup& group, std::size_t tile, std::size_t count, std::size_t panel) {
    const std::size_t row = group.row(tile);
    const std::size_t height = group.height_of(tile);
    const std::size_t column = panel * width_;
    const std::size_t columns = std::min(width_, right_.columns - column);
    const TargetTile<T> to{target_.data + row * target_.stride + column,
                           target_.stride,
                           columns,
                           {ending_.adds, ending_.bias == nullptr ? nullptr : ending_.bias + column, ending_.relu}};
    if (copies_) prefetch_rows(group, panel);
    const std::size_t vectors = (columns + lanes_ - 1) / lanes_;
    tile_function<T>(height, vectors, left_.is_adjacent)(left_tiles(row, tile, height, count), right_.panel(column), to,
                                                         upcoming(group, tile, count, panel));
  }

  LeftTiles<T> left_tiles(std::size_t row, std::size_t tile, std::size_t height, std::size_t count) const {
    if (packs_) return {memory_ + tile * tile_size_, left_panel_step<T>(), &whole_, 1, count, tile_size_};
    if (copies_) return {memory_ + tile * tile_size_, copied_row_step<T>, &whole_, 1, count, tile_size_};
    const std::size_t step = left_.is_adjacent ? 1 : left_.step;
    return {left_.data + row * step, left_.step, left_.runs, left_.run_count, count, height * step};
  }

  // Returns the lines that tiles ask for meanwhile: one line of each depth of the next group that is packed, or of the
  // right operand's next block.
  UpcomingLines<T> upcoming(const TileGroup& group, std::size_t tile, std::size_t count, std::size_t panel) const {
    if (packs_ && panel == 0 && !is_last_) {
      const std::size_t row = group.first + group.rows + std::min(tile * line, group.rows);
      return {left_.data + left_.runs[0].offset + row, left_.step, count == 1 ? 0 : line};
    }
    if (copies_ && right_.next != nullptr && group_number_ * line < width_)
      return {right_.next + panel * width_ + group_number_ * line, right_.direct_stride, 0};
    return {right_.panel(0).data, 0, 0};
  }

  // Asks for a part of the rows that are copied next: of this block of depth, or of the next.
  void prefetch_rows(const TileGroup& group, std::size_t panel) const {
    const T* const next =
        left_.data + left_.runs[0].offset + (is_last_ ? right_.depth : (group.first + group.rows) * left_.step);
    for (std::size_t i = panel * group.rows / panels_; i < (panel + 1) * group.rows / panels_; ++i) {
      for (std::size_t k = 0; k < right_.depth; k += line) prefetch_to_second_cache(next + i * left_.step + k);
    }
  }

  const LeftRows<T>& left_;
  const RightBlock<T>& right_;
  const ProductTarget<T>& target_;
  const ProductEnding<T>& ending_;
  const DepthRun whole_;  // of packed and copied rows
  const std::size_t lanes_ = hn::Lanes(hn::ScalableTag<T>());
  const std::size_t width_ = panel_width<T>();
  std::size_t panels_ = 0;
  bool packs_ = false;
  bool copies_ = false;
  std::size_t tile_size_ = 0;    // elements of packed or copied rows
  std::size_t group_tiles_ = 0;  // 0: all are one group
  T* memory_ = nullptr;
  std::size_t group_number_ = 0;
  bool is_last_ = false;
};

// Multiplies rows with a block of the right operand. The target is that of the first row and the block's first column.
template <class T>
void multiply_rows(const LeftRows<T>& left, std::size_t rows, const RightBlock<T>& right,
                   const ProductTarget<T>& target, const ProductEnding<T>& ending) {
  if (rows > 0) RowsProduct<T>(left, right, target, ending).multiply(rows);
}

// Returns how a block of depth ends: only the first may overwrite, only the last adds the bias and applies relu.
template <class T>
ProductEnding<T> ending_of_block(const ProductEnding<T>& ending, bool is_first, bool is_last, std::size_t column) {
  return {ending.adds || !is_first, is_last && ending.bias != nullptr ? ending.bias + column : nullptr,
          is_last && ending.relu};
}

}  // namespace lockstep::train::compute::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
