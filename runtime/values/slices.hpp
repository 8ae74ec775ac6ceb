// SPDX-License-Identifier: Apache-2.0
// Holds some rows of a tensor, as the gradient of a few rows. An index may come more than once. Pure.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/values/arithmetic.hpp"
#include "runtime/values/tensor.hpp"

namespace lockstep {

// Owns the rows and their indices.
template <class T>
class IndexedSlices {
 public:
  using value_type = T;
  // Takes one row of `values` for each index. Their shape is `dense_shape` except for the first axis. Throws Error
  // usage for another shape, or an index outside the tensor.
  IndexedSlices(Tensor<T> values, std::vector<std::int64_t> indices, TensorShape dense_shape)
      : values_(std::move(values)), indices_(std::move(indices)), dense_shape_(std::move(dense_shape)) {
    if (dense_shape_.rank() == 0)
      throw Error(Code::usage, "slices of a scalar", "they are rows of a tensor of one axis at least");
    const auto rows = static_cast<std::int64_t>(indices_.size());
    if (values_.shape() != dense_shape_.with(0, rows))
      throw Error(Code::usage,
                  text("slices of shape ", values_.shape().to_string(), " with ", rows, " indices into the shape ",
                       dense_shape_.to_string()),
                  text("give values of shape ", dense_shape_.with(0, rows).to_string()));
    for (const std::int64_t index : indices_) {
      if (index < 0 || index >= dense_shape_[0])
        throw Error(Code::usage, text("there is no row ", index, " in the shape ", dense_shape_.to_string()),
                    "indices count from 0");
    }
  }

  // Return the rows, the index of each row, and the shape of the tensor that they are rows of.
  const Tensor<T>& values() const { return values_; }
  const std::vector<std::int64_t>& indices() const { return indices_; }
  const TensorShape& dense_shape() const { return dense_shape_; }
  // Returns the number of elements in a row.
  std::size_t row_size() const { return dense_shape_.inside(0); }

  // Calls `with_each(element of the whole, element of the slice)`, row by row in the order of the indices.
  template <class F>
  void scatter(Tensor<T>& whole, F&& with_each) const {
    for (std::size_t i = 0; i < indices_.size(); ++i) {
      const std::size_t to = static_cast<std::size_t>(indices_[i]) * row_size();
      for (std::size_t j = 0; j < row_size(); ++j) with_each(whole[to + j], values_[i * row_size() + j]);
    }
  }
  // Returns the whole tensor: rows without a slice are zero, and repeated rows are added up.
  Tensor<T> dense() const {
    Tensor<T> whole(dense_shape_);
    scatter(whole, [](T& to, const T& from) { to = detail::changed(detail::UpdateOp::add, to, from); });
    return whole;
  }
  bool operator==(const IndexedSlices&) const = default;

 private:
  Tensor<T> values_;
  std::vector<std::int64_t> indices_;
  TensorShape dense_shape_;
};

namespace detail {
// True for IndexedSlices.
template <class T>
inline constexpr bool is_slices = false;
template <class T>
inline constexpr bool is_slices<IndexedSlices<T>> = true;
}  // namespace detail
}  // namespace lockstep
