// SPDX-License-Identifier: Apache-2.0
// Keeps positions of a reader that is ahead of another one, without a copy of a large position for each row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "runtime/data/stage.hpp"

namespace lockstep::data {

// Is the position of a reader, and the number of rows (or steps) behind it that have been read.
struct RowPosition {
  std::shared_ptr<const Bytes> base;
  std::uint64_t rows = 0;
};

// Limits the rows that a position may count. A chunk is counted from a position that rows_apart rows may lie behind.
inline constexpr std::uint64_t rows_apart = 1024;
inline constexpr std::uint64_t max_rows_behind = 4 * rows_apart;

inline void save_behind(std::uint64_t rows, const Bytes& position, Writer& to) {
  to.put(rows).put(std::span<const std::byte>(position));
}
// Goes behind the rows. Returns the position, which the cursor is now `rows` behind.
template <class C>
RowPosition seek_behind(Cursor<C>& upstream, Reader& from) {
  RowPosition position;
  position.rows = from.get<std::uint64_t>();
  check_position(position.rows <= max_rows_behind);
  position.base = std::make_shared<const Bytes>(from.get_bytes());
  seek_to(upstream, *position.base);
  check_position(upstream.skip(position.rows) == position.rows);
  return position;
}

// Follows a reader: a cursor, or another type with position_of() and has_failed(). It takes small positions each time,
// and large ones once in `apart` rows.
class RowPositions {
 public:
  explicit RowPositions(std::uint64_t apart = rows_apart) : apart_(apart) {}
  // Counts rows that have been read or skipped.
  void pass(std::size_t rows) { position_.rows += rows; }
  // Returns the reader's position. While an exception waits in the reader, its own position may be behind the failing
  // row; then the rows are counted on.
  template <class R>
  RowPosition at(const R& reader) {
    const bool counts_on = position_.base && (reader.has_failed() ? position_.rows <= max_rows_behind - rows_apart
                                                                  : is_large() && position_.rows < apart_);
    if (!counts_on) position_ = {.base = std::make_shared<const Bytes>(position_of(reader)), .rows = 0};
    return position_;
  }
  // Begins at another place.
  void go_to(RowPosition position) { position_ = std::move(position); }

 private:
  static constexpr std::size_t small_position = 1024;  // Counts bytes that each row may cost; a guess.
  bool is_large() const { return position_.base->size() > small_position; }

  std::uint64_t apart_;
  RowPosition position_;
};

}  // namespace lockstep::data
