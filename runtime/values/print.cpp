// SPDX-License-Identifier: Apache-2.0
// Prints numbers and arrays as NumPy does.
#include "runtime/values/print.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

namespace lockstep::detail {
namespace {

template <class T>
std::string shortest(T value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const double size = std::abs(static_cast<double>(value));
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  std::array<char, 64> words{};
  const auto end = std::to_chars(words.data(), words.data() + words.size(), value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  std::string result(words.data(), end);
  if (plain && result.find('.') == std::string::npos) result += ".0";
  return result;
}

constexpr std::size_t summarised_from = 1001;
constexpr std::int64_t at_the_edges = 3;

std::string axis_words(const TensorShape& shape, int axis, std::size_t first,
                       const std::function<std::string(std::size_t)>& element, std::string_view separator) {
  if (axis == shape.rank()) return element(first);
  const bool is_last = axis + 1 == shape.rank();
  const std::string_view comma = separator.substr(0, separator.find(' '));
  const std::string between = is_last
                                  ? std::string(separator)
                                  : text(comma, std::string(static_cast<std::size_t>(shape.rank() - axis - 1), '\n'),
                                         std::string(static_cast<std::size_t>(axis) + 1, ' '));
  const std::int64_t length = shape[axis];
  const bool is_cut = shape.count() >= summarised_from && length > 2 * at_the_edges;
  std::string words = "[";
  for (std::int64_t i = 0; i < length; ++i) {
    if (i > 0) words += between;
    if (is_cut && i == at_the_edges) {
      words += "...";
      i = length - at_the_edges - 1;
      continue;
    }
    words += axis_words(shape, axis + 1, first + static_cast<std::size_t>(i) * shape.inside(axis), element, separator);
  }
  return words + "]";
}

}  // namespace

std::string float_words(float value) { return shortest(value); }
std::string float_words(double value) { return shortest(value); }

std::string array_words(const TensorShape& shape, const std::function<std::string(std::size_t)>& element,
                        std::string_view separator) {
  return shape.count() == 0 ? "[]" : axis_words(shape, 0, 0, element, separator);
}

std::string numpy_name(DataType type) {
  if (type == DataType::boolean) return "bool";
  const std::string name(to_string(type));
  const std::string_view kind = name.starts_with("bf")  ? "bfloat"
                                : name.starts_with('f') ? "float"
                                : name.starts_with('i') ? "int"
                                : name.starts_with('u') ? "uint"
                                                        : "complex";
  return text(kind, name.substr(name.find_first_of("0123456789")));
}

// Begins an array of several lines on a line of its own, so that its columns are aligned.
std::string tensor_words(const TensorShape& shape, DataType type,
                         const std::function<std::string(std::size_t)>& element) {
  const std::string values = shape.rank() == 0 ? element(0) : array_words(shape, element, " ");
  return text("tf.Tensor(", values.find('\n') == std::string::npos ? "" : "\n", values, ", shape=", shape.to_string(),
              ", dtype=", numpy_name(type), ')');
}

}  // namespace lockstep::detail
