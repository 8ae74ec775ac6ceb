// SPDX-License-Identifier: Apache-2.0
// Divides batches among replicas: the rules, and the columns of each piece. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "runtime/data/column.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

// Names the rules for the pieces of a batch. `fixed_size` gives each replica the batch size divided by the replicas,
// rounded up, so that the last ones may get fewer rows or none: 4 rows for 3 replicas are 2, 2 and 0. `even` gives
// numbers that differ by one at most: 2, 1 and 1.
enum class BatchDivision : std::uint8_t { fixed_size, even };

namespace data {

// Holds the rows of a piece in a batch.
struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool operator==(const RowRange&) const = default;
};

// Returns the rows of a piece. A last batch has fewer rows than `size`; `fixed_size` divides it as one of `size`.
inline RowRange rows_of_piece(std::int64_t rows, std::int64_t size, int piece, int pieces, BatchDivision division) {
  if (division == BatchDivision::even) {
    const std::int64_t each = rows / pieces;
    const std::int64_t rest = rows % pieces;
    return {piece * each + std::min<std::int64_t>(piece, rest), each + (piece < rest ? 1 : 0)};
  }
  const std::int64_t whole = std::max(rows, size);
  const std::int64_t each = whole / pieces + (whole % pieces != 0 ? 1 : 0);
  const std::int64_t first = each > rows ? (piece == 0 ? 0 : rows) : std::min(rows, piece * each);
  return {first, std::min(each, rows - first)};
}

// Tells a cursor which pieces of each batch its reader keeps.
struct BatchPieces {
  // Returns the kept pieces of a batch with this number of rows, in the order of their rows.
  std::function<std::vector<RowRange>(std::int64_t rows)> of;
  // True if a smaller last batch has the pieces of a whole one, cut off at its end.
  bool is_cut_at_end = false;
  std::string pipeline = {};  // Is the text that errors name.
};

// Appends some rows of a column as one row, with one more axis.
template <class T>
void append_grouped(Column<T>& to, const Column<T>& from, const RowRange& rows) {
  to.append(from.shape(0), 0);
  to.append_rows(from, static_cast<std::size_t>(rows.first), static_cast<std::size_t>(rows.count));
  to.group();
}
// Replaces the pieces by parts of rows that are to be a batch.
template <class C>
void divide_rows(const C& rows, const std::vector<RowRange>& kept, std::span<C> pieces) {
  for (std::size_t i = 0; i < kept.size(); ++i) {
    clear(pieces[i]);
    zip_columns(
        pieces[i], rows, [&](auto& to, const auto& from) { append_grouped(to, from, kept[i]); },
        std::make_index_sequence<std::tuple_size_v<C>>());
  }
}

// True for columns of numbers and tensors, which alone can be batches.
template <class C>
inline constexpr bool are_tensors = false;
template <class... T>
inline constexpr bool are_tensors<std::tuple<Column<T>...>> = (Number<T> && ...);

// Returns the number of rows in a batch, which is the only row of the columns. Throws Error usage if its tensors have
// different numbers.
template <class C>
std::int64_t rows_in_batch(const C& batch, const std::string& pipeline) {
  std::optional<std::int64_t> rows;
  for_each_column(batch, [&](const auto& column) {
    const TensorShape& shape = column.shape(0);
    if (shape.rank() == 0 || shape[0] != rows.value_or(shape[0]))
      throw Error(Code::usage,
                  text("an element of ", pipeline, " has a tensor of the shape ", shape.to_string(),
                       rows ? text(" beside one of ", *rows, " rows") : ""),
                  "call batch(size of the global batch) before distribute()");
    rows = shape[0];
  });
  return *rows;
}
// Replaces the pieces by parts of a batch, which is the only row of the columns.
template <class C>
void divide_batch(const C& batch, const std::vector<RowRange>& kept, std::span<C> pieces) {
  for (std::size_t i = 0; i < kept.size(); ++i) {
    clear(pieces[i]);
    zip_columns(
        pieces[i], batch,
        [&]<class T>(Column<T>& to, const Column<T>& from) {
          const TensorShape row = from.shape(0).without(0);
          const auto first = static_cast<std::size_t>(kept[i].first);
          const auto count = static_cast<std::size_t>(kept[i].count);
          detail::copy_elements(from.row(0) + first * row.count(), count * row.count(), to.append(row, count));
          to.group();
        },
        std::make_index_sequence<std::tuple_size_v<C>>());
  }
}

}  // namespace data
}  // namespace lockstep
