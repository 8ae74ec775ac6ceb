// SPDX-License-Identifier: Apache-2.0
// Defines the source whose rows are those of arrays in files. Rows are copied from the mapped file when they are read.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/files/files.hpp"
#include "runtime/data/files/mapped_file.hpp"

namespace lockstep::data {

// Refers to an array in a file.
struct FileArray {
  std::string place;  // Names the array in messages.
  DataType type{};
  std::vector<std::int64_t> lengths;
  bool is_big_endian = false;
  std::span<const std::byte> bytes = {};
  std::shared_ptr<const MappedFile> mapped = nullptr;  // Has the bytes, unless `unpacked` has them.
  std::shared_ptr<const Bytes> unpacked = nullptr;
};

// Returns the size of an array, if it is at most `most` and the array's shape has a number of elements.
std::optional<std::size_t> bytes_of_array(DataType type, std::span<const std::int64_t> lengths, std::uint64_t most);

// Throws Error unless the array has rows of this type; their number of axes is -1 for any.
void require_array(const FileArray& array, DataType type, int row_axes);
// Throws Error unless an array has as many rows as another of the element has.
void require_as_many_rows(const FileArray& array, const FileArray& first);
// Throws Error unless an array in another file has rows of the same shape.
void require_like(const FileArray& array, const FileArray& first);

// Copies bytes, and changes their order in elements of 1, 2, 4 or 8 bytes.
void copy_swapped(std::span<const std::byte> from, std::size_t size, void* to);

// Copies elements of an array.
template <class T>
void copy_from_array(const FileArray& array, std::size_t first, std::size_t count, T* to) {
  const std::span<const std::byte> from = array.bytes.subspan(first * sizeof(T), count * sizeof(T));
  if constexpr (std::is_same_v<T, bool>)
    std::ranges::transform(from, to, [](std::byte each) { return each != std::byte{0}; });
  else if (array.is_big_endian)
    copy_swapped(from, sizeof(T), to);
  else if (count > 0)
    std::memcpy(to, from.data(), from.size());
}

template <class C>
inline constexpr std::size_t column_count = std::tuple_size_v<C>;

// Describes an array that an element of the data set needs.
struct RowType {
  DataType type;
  int axes;  // Is -1 for any number of them.
};
// Returns those of an element's leaves.
template <class E>
std::vector<RowType> row_types() {
  E element{};
  return std::apply(
      []<class... Leaf>(const Leaf&... /*leaves*/) {
        static_assert((!is_text<Leaf> && ...), "lockstep: arrays in files have numbers; an element here is a text");
        const auto of = []<class T>(const std::type_identity<T>& /*leaf*/) {
          if constexpr (is_tensor<T>)
            return RowType{data_type_of<typename T::value_type>, -1};
          else
            return RowType{data_type_of<T>, 0};
        };
        return std::vector<RowType>{of(std::type_identity<Leaf>())...};
      },
      leaves(element));
}

// Holds the arrays of several files: one array for each leaf of an element.
class ArrayFiles {
 public:
  using Read = std::function<std::vector<FileArray>(const std::string& path)>;
  ArrayFiles(const std::vector<std::string>& paths, const std::vector<RowType>& types, const Read& read);
  std::int64_t rows() const { return begins_.back(); }
  const TensorShape& row_shape(std::size_t leaf) const { return shapes_[leaf]; }
  // Throws Error file if one of the files with these rows has been changed.
  void require_unchanged(std::span<const std::int64_t> numbers) const;
  void require_unchanged(std::int64_t first, std::size_t number) const;
  // Calls copy(array, first row in it, number of rows) for the pieces of rows that lie in one file.
  template <class F>
  void for_each_piece(std::size_t leaf, std::int64_t first, std::size_t number, F&& copy) const {
    auto left = static_cast<std::int64_t>(number);
    for (std::size_t file = left > 0 ? file_of(first) : 0; left > 0; ++file) {
      const std::int64_t here = std::min(left, begins_[file + 1] - first);
      copy(files_[file][leaf], static_cast<std::size_t>(first - begins_[file]), static_cast<std::size_t>(here));
      first += here;
      left -= here;
    }
  }

 private:
  std::size_t file_of(std::int64_t row) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(begins_, row) - begins_.begin()) - 1;
  }

  std::vector<std::vector<FileArray>> files_;
  std::vector<TensorShape> shapes_;
  std::vector<std::int64_t> begins_{0};  // Holds the first row of each file, and the number of all rows.
};

// Reads the rows of arrays.
template <class E>
class ArrayFilesStage final : public FileStage<Columns<E>> {
 public:
  using C = Columns<E>;
  ArrayFilesStage(std::vector<std::string> paths, std::string source, ArrayFiles::Read read)
      : FileStage<C>(std::move(paths)),
        source_(std::move(source)),
        read_(std::move(read)),
        arrays_(this->files(), row_types<E>(), read_) {}
  std::unique_ptr<Cursor<C>> open(const Opening& /*opening*/) const override {
    return std::make_unique<IndexedCursor<C>>(*this);
  }
  std::int64_t length() const override { return arrays_.rows(); }
  std::string describe() const override {
    return describe_source(source_, this->files(), text(arrays_.rows(), " rows"));
  }
  bool is_indexed() const override { return true; }
  void gather(std::span<const std::int64_t> numbers, C& out) const override {
    arrays_.require_unchanged(numbers);
    for_each_leaf(out, [&]<class T>(std::size_t leaf, Column<T>& column) {
      const TensorShape& row = arrays_.row_shape(leaf);
      T* to = column.append(row, numbers.size());
      for (const std::int64_t number : numbers) to = copy_rows(leaf, number, 1, to);
    });
  }
  void gather_range(std::int64_t first, std::size_t number, C& out) const override {
    arrays_.require_unchanged(first, number);
    for_each_leaf(out, [&]<class T>(std::size_t leaf, Column<T>& column) {
      copy_rows(leaf, first, number, column.append(arrays_.row_shape(leaf), number));
    });
  }
  SharedStage<C> with_files(std::vector<std::string> paths) const override {
    return std::make_shared<ArrayFilesStage>(std::move(paths), source_, read_);
  }

 private:
  // Returns the end of the rows in memory.
  template <class T>
  T* copy_rows(std::size_t leaf, std::int64_t first, std::size_t number, T* to) const {
    const std::size_t count = arrays_.row_shape(leaf).count();
    arrays_.for_each_piece(leaf, first, number, [&](const FileArray& array, std::size_t row, std::size_t rows) {
      copy_from_array(array, row * count, rows * count, to);
      to += rows * count;
    });
    return to;
  }
  template <class F>
  static void for_each_leaf(C& out, F&& function) {
    std::size_t leaf = 0;
    for_each_column(out, [&](auto& column) { function(leaf++, column); });
  }

  std::string source_;
  ArrayFiles::Read read_;
  ArrayFiles arrays_;
};

}  // namespace lockstep::data
