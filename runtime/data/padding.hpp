// SPDX-License-Identifier: Apache-2.0
// Makes one row of rows that have different shapes. Pure.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/data/stage.hpp"

namespace lockstep::data {

// Gives the padding of elements. By default they get zeros up to the longest one along each axis.
struct PaddingOptions {
  bool drop_remainder = false;  // Leaves out a last batch with fewer elements.
  // Give the lengths along the axes of each number or tensor in an element; -1 means the longest.
  std::vector<std::vector<std::int64_t>> lengths = {};
  std::vector<double> values = {};  // Give the padding of each number or tensor, or one for all.
};

// Returns a value as a number of the type T; nothing if the type does not hold it.
template <class T>
std::optional<T> number_of(double value) {
  if constexpr (std::is_integral_v<T>) {
    constexpr double end = 2.0 * static_cast<double>(T(1) << (std::numeric_limits<T>::digits - 1));
    if (!(value >= static_cast<double>(std::numeric_limits<T>::min()) && value < end)) return std::nullopt;
    const T number = static_cast<T>(value);
    return static_cast<double>(number) == value ? std::optional(number) : std::nullopt;
  } else if constexpr (requires { typename T::value_type; }) {
    return T(static_cast<typename T::value_type>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(value);
  } else {
    return T(static_cast<float>(value));
  }
}

// Copies a tensor into the beginning of a larger one, axis by axis.
template <class T>
void copy_into_corner(const TensorShape& shape, const T* from, const TensorShape& whole, T* to, int axis = 0) {
  if (shape.count() == 0) return;
  if (axis + 1 >= shape.rank()) {
    detail::copy_elements(from, shape.rank() == 0 ? 1 : static_cast<std::size_t>(shape[axis]), to);
    return;
  }
  for (std::int64_t i = 0; i < shape[axis]; ++i) {
    const auto number = static_cast<std::size_t>(i);
    copy_into_corner(shape, from + number * shape.inside(axis), whole, to + number * whole.inside(axis), axis + 1);
  }
}

// Pads rows with the columns C.
template <class C>
class PaddingRule {
 public:
  // Throws Error usage for options that the columns cannot have.
  explicit PaddingRule(PaddingOptions options) : options_(std::move(options)) {
    constexpr std::size_t columns = std::tuple_size_v<C>;
    const auto& [drop_remainder, lengths, values] = options_;
    require(lengths.empty() || lengths.size() == columns,
            text(lengths.size(), " lists of lengths for elements with ", columns, " numbers or tensors"),
            "give a list for each");
    for (const auto& each : lengths)
      require(std::ranges::all_of(each, [](std::int64_t length) { return length >= -1; }), "a length below -1",
              "give lengths, or -1 for the longest");
    require(values.size() <= 1 || values.size() == columns,
            text(values.size(), " values for elements with ", columns, " numbers or tensors"),
            "give one for each, or one for all");
    std::size_t number = 0;
    const C all;
    for_each_column(all, [&]<class T>(const Column<T>& /*column*/) {
      const double value = value_of(number++);
      require(number_of<T>(value).has_value(), text("the value ", value), "give one that the elements' type has");
    });
  }
  // Returns a text such as ", lengths (5,), values -1", which is empty by default.
  std::string describe() const {
    std::string all;
    for (const auto& each : options_.lengths) {
      all += all.empty() ? ", lengths (" : " (";
      for (const std::int64_t length : each) all += text(length, ',');
      all += ')';
    }
    for (std::size_t i = 0; i < options_.values.size(); ++i)
      all += text(i == 0 ? ", values " : " ", options_.values[i]);
    return all;
  }
  // Appends the rows of column number `column` as one row. Names the stage in errors.
  template <class T>
  void append(Column<T>& to, const Column<T>& from, std::size_t column, const Stage<C>& stage) const {
    const TensorShape whole(lengths_of(from, column, stage));
    std::vector<std::int64_t> lengths = whole.lengths();
    lengths.insert(lengths.begin(), static_cast<std::int64_t>(from.rows()));
    T* const begin = to.append(TensorShape(std::move(lengths)), 1);
    std::fill_n(begin, from.rows() * whole.count(), *number_of<T>(value_of(column)));
    for (std::size_t i = 0; i < from.rows(); ++i)
      copy_into_corner(from.shape(i), from.row(i), whole, begin + i * whole.count());
  }

 private:
  static void require(bool holds, const std::string& fault, const char* remedy) {
    if (!holds) throw Error(Code::usage, text("padded_batch() with ", fault), remedy);
  }
  double value_of(std::size_t column) const {
    if (options_.values.empty()) return 0;
    return options_.values[options_.values.size() == 1 ? 0 : column];
  }
  template <class T>
  std::vector<std::int64_t> lengths_of(const Column<T>& from, std::size_t column, const Stage<C>& stage) const {
    std::vector<std::int64_t> lengths = from.shape(0).lengths();
    for (std::size_t i = 1; i < from.rows(); ++i) {
      const TensorShape& shape = from.shape(i);
      if (shape.rank() != from.shape(0).rank())
        throw Error(
            Code::usage,
            text(stage.describe(), " has elements of ", from.shape(0).rank(), " and of ", shape.rank(), " axes"),
            "give them one number of axes by map()");
      for (std::size_t axis = 0; axis < lengths.size(); ++axis)
        lengths[axis] = std::max(lengths[axis], shape.lengths()[axis]);
    }
    if (!options_.lengths.empty()) fix_lengths(lengths, options_.lengths[column], stage);
    return lengths;
  }
  static void fix_lengths(std::vector<std::int64_t>& longest, const std::vector<std::int64_t>& given,
                          const Stage<C>& stage) {
    if (given.size() != longest.size())
      throw Error(Code::usage,
                  text(stage.describe(), " has elements of ", longest.size(), " axes, and lengths for ", given.size()),
                  "give a length for each axis, or -1 for the longest");
    for (std::size_t axis = 0; axis < given.size(); ++axis) {
      if (given[axis] < 0) continue;
      if (longest[axis] > given[axis])
        throw Error(Code::usage, text(stage.describe(), " has an element of the length ", longest[axis]),
                    "give the length of the longest element or more, or -1");
      longest[axis] = given[axis];
    }
  }

  PaddingOptions options_;
};

}  // namespace lockstep::data
