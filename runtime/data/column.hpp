// SPDX-License-Identifier: Apache-2.0
// Holds many elements of a data set at once: one column of rows for each number, tensor or text in an element. Rows lie
// one behind the other in memory, so rows of equal shapes are a batch already. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/values/structure.hpp"
#include "runtime/values/tensor.hpp"
#include "topology/base/bytes.hpp"

namespace lockstep::data {

// Holds rows with elements of the type T.
template <class T>
class Column {
 public:
  std::size_t rows() const { return rows_; }
  bool has_equal_shapes() const { return shapes_.empty(); }
  const TensorShape& shape(std::size_t row) const { return shapes_.empty() ? shape_ : shapes_[row]; }
  const T* row(std::size_t number) const { return memory_.get() + begin_of(number); }
  T* row(std::size_t number) { return memory_.get() + begin_of(number); }

  // Keeps the memory for the next rows.
  void clear() { truncate(0); }
  // Keeps the first rows alone.
  void truncate(std::size_t rows) {
    size_ = begin_of(rows);
    rows_ = rows;
    if (shapes_.empty()) return;
    shapes_.resize(rows);
    begins_.resize(rows);
  }
  // Appends rows of one shape and returns their memory, which is not initialised.
  T* append(const TensorShape& shape, std::size_t number) {
    if (rows_ == 0) {
      if (shape_ != shape) shape_ = shape;
    } else if (!shapes_.empty() || shape_ != shape) {
      append_shapes(shape, number);
    }
    T* const begin = grow(number * shape.count());
    rows_ += number;
    return begin;
  }
  void append_row(const TensorShape& shape, const T* from) {
    detail::copy_elements(from, shape.count(), append(shape, 1));
  }
  // Appends some of the rows of another column.
  void append_rows(const Column& from, std::size_t first, std::size_t number) {
    if (number == 0) return;
    if (!from.has_equal_shapes()) {
      for (std::size_t i = first; i < first + number; ++i) append_row(from.shape(i), from.row(i));
    } else {
      T* const to = append(from.shape_, number);
      detail::copy_elements(from.row(first), number * from.shape_.count(), to);
    }
  }
  // Makes one row of all rows, with one more axis. They must have equal shapes.
  void group() {
    std::vector<std::int64_t> lengths{static_cast<std::int64_t>(rows_)};
    lengths.insert(lengths.end(), shape_.lengths().begin(), shape_.lengths().end());
    shape_ = TensorShape(std::move(lengths));
    rows_ = 1;
  }
  // Gives the only row to a tensor, and takes its memory for the next rows.
  void exchange(Tensor<T>& tensor) {
    const TensorShape mine = shape(0);
    const std::size_t theirs = tensor.size();
    tensor.exchange_memory(mine, memory_);
    capacity_ = theirs;
    clear();
  }

  // Append the rows to a message, and read them back. Rows of equal shapes have one in the message.
  void save(Writer& to) const {
    to.put(data_type_of<T>).put(static_cast<std::uint64_t>(rows_)).put(has_equal_shapes());
    const std::size_t shapes = has_equal_shapes() ? std::min<std::size_t>(1, rows_) : rows_;
    for (std::size_t i = 0; i < shapes; ++i) to.put(std::as_bytes(std::span(shape(i).lengths())));
    to.put(std::as_bytes(std::span(memory_.get(), size_)));
  }
  void load(Reader& from) {
    clear();
    if (from.get<DataType>() != data_type_of<T>) refuse("rows of another type");
    const auto rows = from.get<std::uint64_t>();
    const bool has_one_shape = from.get<bool>();
    std::vector<TensorShape> shapes;
    for (std::uint64_t i = 0; i < (has_one_shape ? std::min<std::uint64_t>(1, rows) : rows); ++i)
      shapes.push_back(load_shape(from));
    const Bytes elements = from.get_bytes();
    if (std::is_same_v<T, bool> && std::ranges::any_of(elements, [](std::byte each) { return each > std::byte{1}; }))
      refuse("a bool that is neither true nor false");
    std::size_t used = 0;
    for (const TensorShape& each : shapes) {
      const std::size_t size = each.count() * sizeof(T);
      const std::uint64_t number = has_one_shape ? rows : 1;
      if (size > 0 && (elements.size() - used) / size < number) refuse("too few elements for their shape");
      T* const to = append(each, number);
      if (size > 0) std::memcpy(to, elements.data() + used, number * size);
      used += number * size;
    }
    if (used != elements.size()) refuse("too many elements for their shape");
  }

 private:
  [[noreturn]] static void refuse(const char* what) { throw Error(Code::bad_message, text("saved rows have ", what)); }
  static TensorShape load_shape(Reader& from) {
    const Bytes lengths = from.get_bytes();
    if (lengths.size() % sizeof(std::int64_t) != 0) refuse("half a length");
    std::vector<std::int64_t> all(lengths.size() / sizeof(std::int64_t));
    if (!all.empty()) std::memcpy(all.data(), lengths.data(), all.size() * sizeof(std::int64_t));
    return TensorShape(std::move(all));
  }
  std::size_t begin_of(std::size_t row) const {
    if (shapes_.empty()) return row * shape_.count();
    return row < begins_.size() ? begins_[row] : size_;
  }
  // Keeps a shape for each row from now on.
  void append_shapes(const TensorShape& shape, std::size_t number) {
    if (shapes_.empty()) {
      shapes_.assign(rows_, shape_);
      for (std::size_t i = 0; i < rows_; ++i) begins_.push_back(i * shape_.count());
    }
    for (std::size_t i = 0; i < number; ++i) {
      begins_.push_back(size_ + i * shape.count());
      shapes_.push_back(shape);
    }
  }
  // Returns the memory of more elements.
  T* grow(std::size_t elements) {
    if (size_ + elements > capacity_) {
      const std::size_t capacity = std::max(size_ + elements, rows_ == 0 ? elements : 2 * capacity_);
      std::unique_ptr<T[]> memory(new T[capacity]);
      detail::copy_elements(memory_.get(), size_, memory.get());
      memory_ = std::move(memory);
      capacity_ = capacity;
    }
    T* const begin = memory_.get() + size_;
    size_ += elements;
    return begin;
  }

  std::size_t rows_ = 0;
  std::size_t size_ = 0;      // Counts the elements of all rows.
  std::size_t capacity_ = 0;  // Counts the elements that fit into the memory.
  std::unique_ptr<T[]> memory_;
  TensorShape shape_;  // Is that of all rows, unless they have different ones.
  // Hold the shape and the first element of each row. They are empty if all rows have the same shape.
  std::vector<TensorShape> shapes_;
  std::vector<std::size_t> begins_;
};

// Holds texts. They make no batch.
template <>
class Column<std::string> {
 public:
  std::size_t rows() const { return ends_.size(); }
  std::string_view row(std::size_t number) const {
    const std::size_t begin = number == 0 ? 0 : ends_[number - 1];
    return std::string_view(letters_).substr(begin, ends_[number] - begin);
  }
  // Keeps the memory for the next rows.
  void clear() { truncate(0); }
  // Keeps the first rows alone.
  void truncate(std::size_t rows) {
    letters_.resize(rows == 0 ? 0 : ends_[rows - 1]);
    ends_.resize(rows);
  }
  void append_row(std::string_view letters) {
    letters_ += letters;
    ends_.push_back(letters_.size());
  }
  // Appends some of the rows of another column.
  void append_rows(const Column& from, std::size_t first, std::size_t number) {
    for (std::size_t i = first; i < first + number; ++i) append_row(from.row(i));
  }

  // Append the rows to a message, and read them back.
  void save(Writer& to) const {
    to.put(text_type).put(static_cast<std::uint64_t>(rows()));
    for (std::size_t i = 0; i < rows(); ++i) to.put(row(i));
  }
  void load(Reader& from) {
    clear();
    if (from.get<std::uint8_t>() != text_type) throw Error(Code::bad_message, "a position with rows of another type");
    const auto rows = from.get<std::uint64_t>();
    for (std::uint64_t i = 0; i < rows; ++i) append_row(from.get_string());
  }

 private:
  static constexpr std::uint8_t text_type = 255;  // Stands beside the numbers of DataType.

  std::string letters_;
  std::vector<std::size_t> ends_;  // Holds the end of each row in the letters.
};

using detail::HasChangeableFields;
using detail::HasFields;
using detail::Number;
using detail::TupleLike;

template <class E>
inline constexpr bool is_tensor = false;
template <class T>
inline constexpr bool is_tensor<Tensor<T>> = true;
template <class E>
inline constexpr bool is_text = std::is_same_v<E, std::string>;

template <class E>
inline constexpr bool is_leaf = Number<E> || is_tensor<E> || is_text<E> || detail::IsPerReplica<E>;

// Returns references to the numbers, tensors and texts in an element, in order.
template <class E>
auto leaves(E& element) {
  using Plain = std::remove_const_t<E>;
  if constexpr (HasFields<Plain>) {
    return std::apply([](auto&... each) { return std::tuple_cat(leaves(each)...); }, Fields<Plain>::of(element));
  } else if constexpr (TupleLike<Plain>) {
    return std::apply([](auto&... each) { return std::tuple_cat(leaves(each)...); }, element);
  } else {
    static_assert(is_leaf<Plain>,
                  "lockstep: the elements of a data set are numbers, tensors, std::strings, tuples of them, or structs "
                  "with Fields");
    return std::tuple<E&>(element);
  }
}

template <class Leaf>
struct ColumnOf {
  using Type = Column<Leaf>;
};
template <class T>
struct ColumnOf<Tensor<T>> {
  using Type = Column<T>;
};
template <class Leaves>
struct ColumnsOf;
template <class... Leaf>
struct ColumnsOf<std::tuple<Leaf&...>> {
  using Type = std::tuple<typename ColumnOf<Leaf>::Type...>;
};

// Gives the type of a batch: a tensor for a number, a tensor with one more axis for a tensor. `exists` is false for a
// struct whose fields cannot become tensors.
template <class E>
struct BatchOf {
  using Type = E;
  static constexpr bool exists = false;
};
template <Number T>
struct BatchOf<T> {
  using Type = Tensor<T>;
  static constexpr bool exists = true;
};
template <class T>
struct BatchOf<Tensor<T>> {
  using Type = Tensor<T>;
  static constexpr bool exists = true;
};
template <class... E>
struct BatchOf<std::tuple<E...>> {
  using Type = std::tuple<typename BatchOf<E>::Type...>;
  static constexpr bool exists = (BatchOf<E>::exists && ...);
};
template <class A, class B>
struct BatchOf<std::pair<A, B>> {
  using Type = std::pair<typename BatchOf<A>::Type, typename BatchOf<B>::Type>;
  static constexpr bool exists = BatchOf<A>::exists && BatchOf<B>::exists;
};
template <template <class...> class S, class... F>
requires HasChangeableFields<S<F...>>
struct BatchOf<S<F...>> {
  using Type = S<typename BatchOf<F>::Type...>;
  static constexpr bool exists = (BatchOf<F>::exists && ...);
};

// Names the columns of the elements of type E. Batches of E have the same ones.
template <class E>
using Columns = typename ColumnsOf<decltype(leaves(std::declval<E&>()))>::Type;
template <class E>
using Batch = typename BatchOf<E>::Type;

template <class C>
std::size_t rows_of(const C& columns) {
  return std::get<0>(columns).rows();
}
template <class C, class F>
void for_each_column(C& columns, F&& function) {
  std::apply([&](auto&... each) { (function(each), ...); }, columns);
}
// Returns the number of rows that all columns have, if an exception has interrupted an append.
template <class C>
std::size_t complete_rows_of(const C& columns) {
  return std::apply([](const auto&... each) { return std::min({each.rows()...}); }, columns);
}
template <class C>
void clear(C& columns) {
  for_each_column(columns, [](auto& each) { each.clear(); });
}
template <class C>
void truncate(C& columns, std::size_t rows) {
  for_each_column(columns, [&](auto& each) { each.truncate(rows); });
}

template <class C, class F, std::size_t... i>
void zip_columns(C& a, const C& b, F&& function, std::index_sequence<i...> /*columns*/) {
  (function(std::get<i>(a), std::get<i>(b)), ...);
}
template <class C, class Leaves, class F, std::size_t... i>
void zip_leaves(C& columns, Leaves leaves, F&& function, std::index_sequence<i...> /*columns*/) {
  (function(std::get<i>(columns), std::get<i>(leaves)), ...);
}

// Appends some of the rows of other columns.
template <class C>
void append_rows(C& to, const C& from, std::size_t first, std::size_t number) {
  zip_columns(
      to, from, [&](auto& mine, const auto& theirs) { mine.append_rows(theirs, first, number); },
      std::make_index_sequence<std::tuple_size_v<C>>());
}
// Appends an element as a row.
template <class C, class E>
void append_element(C& to, const E& element) {
  zip_leaves(
      to, leaves(element),
      []<class T, class Leaf>(Column<T>& column, const Leaf& leaf) {
        if constexpr (is_text<Leaf>)
          column.append_row(leaf);
        else if constexpr (Number<Leaf>)
          *column.append(TensorShape(), 1) = leaf;
        else
          column.append_row(leaf.shape(), leaf.data());
      },
      std::make_index_sequence<std::tuple_size_v<C>>());
}
// Copies a row into an element. Tensors of the same size keep their memory.
template <class C, class E>
void read_element(const C& from, std::size_t row, E& element) {
  zip_leaves(
      from, leaves(element),
      [&]<class T, class Leaf>(const Column<T>& column, Leaf& leaf) {
        if constexpr (is_text<Leaf>)
          leaf = column.row(row);
        else if constexpr (Number<Leaf>)
          leaf = *column.row(row);
        else
          leaf.assign(column.shape(row), column.row(row));
      },
      std::make_index_sequence<std::tuple_size_v<C>>());
}
// Moves the only row into an element, without a copy of its tensors.
template <class C, class E>
void move_element(C& from, E& element) {
  zip_leaves(
      from, leaves(element),
      [&]<class T, class Leaf>(Column<T>& column, Leaf& leaf) {
        if constexpr (is_text<Leaf>) {
          leaf = column.row(0);
          column.clear();
        } else if constexpr (Number<Leaf>) {
          leaf = *column.row(0);
          column.clear();
        } else {
          column.exchange(leaf);
        }
      },
      std::make_index_sequence<std::tuple_size_v<C>>());
}

}  // namespace lockstep::data
