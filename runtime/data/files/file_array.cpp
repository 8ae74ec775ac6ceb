// SPDX-License-Identifier: Apache-2.0
// Checks the arrays of files against each other and against the element's type.
#include "runtime/data/files/file_array.hpp"

namespace lockstep::data {
namespace {

TensorShape shape_of_lengths(const std::vector<std::int64_t>& lengths) { return TensorShape(lengths); }

TensorShape shape_of_row(const FileArray& array) {
  return TensorShape(std::vector(array.lengths.begin() + 1, array.lengths.end()));
}

// Copies words, which may lie at any address.
template <class Word, class F>
void copy_each(std::span<const std::byte> from, void* to, const F& changed) {
  auto* out = static_cast<std::byte*>(to);
  for (std::size_t i = 0; i + sizeof(Word) <= from.size(); i += sizeof(Word)) {
    Word word{};
    std::memcpy(&word, from.data() + i, sizeof word);
    word = changed(word);
    std::memcpy(out + i, &word, sizeof word);
  }
}

}  // namespace

std::optional<std::size_t> bytes_of_array(DataType type, std::span<const std::int64_t> lengths, std::uint64_t most) {
  std::int64_t product = static_cast<std::int64_t>(size_of(type));
  bool is_empty = false;
  for (const std::int64_t length : lengths) {
    is_empty = is_empty || length == 0;
    if (length < 0 || __builtin_mul_overflow(product, std::max<std::int64_t>(1, length), &product)) return std::nullopt;
  }
  if (is_empty) return 0;
  const auto bytes = static_cast<std::uint64_t>(product);
  return bytes <= most ? std::optional(static_cast<std::size_t>(bytes)) : std::nullopt;
}

void require_array(const FileArray& array, DataType type, int row_axes) {
  if (array.type != type)
    throw Error(Code::usage,
                text(array.place, " has elements of type ", to_string(array.type), ", not ", to_string(type)),
                "read the type that it has, and convert the elements by map()");
  if (array.lengths.empty())
    throw Error(Code::usage, text(array.place, " has a scalar, which has no rows"), "write an array with an axis");
  if (row_axes == 0 && array.lengths.size() != 1)
    throw Error(Code::usage,
                text(array.place, " has the shape ", shape_of_lengths(array.lengths).to_string(),
                     ", so its rows are no numbers"),
                "let the element have a Tensor for it");
}

void require_as_many_rows(const FileArray& array, const FileArray& first) {
  if (array.lengths.front() == first.lengths.front()) return;
  throw Error(
      Code::file,
      text(array.place, " has ", array.lengths.front(), " rows, and ", first.place, " has ", first.lengths.front()),
      "write as many rows for each part of the element");
}

void require_like(const FileArray& array, const FileArray& first) {
  if (shape_of_row(array) == shape_of_row(first)) return;
  throw Error(Code::file,
              text(array.place, " has rows of shape ", shape_of_row(array).to_string(), ", and ", first.place, " of ",
                   shape_of_row(first).to_string()),
              "read files of different shapes as data sets of their own");
}

void copy_swapped(std::span<const std::byte> from, std::size_t size, void* to) {
  if (from.empty()) return;
  if (size == 1) std::memcpy(to, from.data(), from.size());
  if (size == 2) copy_each<std::uint16_t>(from, to, [](std::uint16_t x) { return __builtin_bswap16(x); });
  if (size == 4) copy_each<std::uint32_t>(from, to, [](std::uint32_t x) { return __builtin_bswap32(x); });
  if (size == 8) copy_each<std::uint64_t>(from, to, [](std::uint64_t x) { return __builtin_bswap64(x); });
}

ArrayFiles::ArrayFiles(const std::vector<std::string>& paths, const std::vector<RowType>& types, const Read& read) {
  shapes_.resize(types.size());
  for (const std::string& path : paths) {
    std::vector<FileArray> arrays = read(path);
    for (std::size_t i = 0; i < types.size(); ++i) {
      require_array(arrays[i], types[i].type, types[i].axes);
      require_as_many_rows(arrays[i], arrays.front());
      if (files_.empty())
        shapes_[i] = shape_of_row(arrays[i]);
      else
        require_like(arrays[i], files_.front()[i]);
    }
    std::int64_t end = 0;
    if (__builtin_add_overflow(begins_.back(), arrays.front().lengths.front(), &end))
      throw Error(Code::file, text(arrays.front().place, " has too many rows"), "give fewer files");
    begins_.push_back(end);
    files_.push_back(std::move(arrays));
  }
}

void ArrayFiles::require_unchanged(std::span<const std::int64_t> numbers) const {
  if (files_.size() == 1) return require_unchanged(0, 1);
  std::vector<bool> is_checked(files_.size());
  for (const std::int64_t number : numbers) {
    const std::size_t file = file_of(number);
    if (is_checked[file]) continue;
    is_checked[file] = true;
    require_unchanged(number, 1);
  }
}

void ArrayFiles::require_unchanged(std::int64_t first, std::size_t number) const {
  for_each_piece(0, first, number, [](const FileArray& array, std::size_t /*row*/, std::size_t /*rows*/) {
    if (array.mapped != nullptr) array.mapped->require_unchanged();
  });
}

}  // namespace lockstep::data
