// SPDX-License-Identifier: Apache-2.0
// How long a tensor is along each of its axes. Of a scalar there is none. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class TensorShape {
 public:
  static constexpr int most_axes = 16;

  TensorShape() = default;
  TensorShape(std::initializer_list<std::int64_t> lengths) : TensorShape(std::vector<std::int64_t>(lengths)) {}
  TensorShape(const TensorShape&) = default;
  TensorShape& operator=(const TensorShape&) = default;
  // What is moved from has no elements, so it is no scalar.
  TensorShape(TensorShape&& other) noexcept
      : lengths_(std::move(other.lengths_)), count_(std::exchange(other.count_, 0)) {}
  TensorShape& operator=(TensorShape&& other) noexcept {
    lengths_ = std::move(other.lengths_);
    count_ = std::exchange(other.count_, 0);
    return *this;
  }
  explicit TensorShape(std::vector<std::int64_t> lengths);  // an Error usage for a negative length, or too much in all

  int rank() const { return static_cast<int>(lengths_.size()); }
  std::size_t count() const { return count_; }  // elements
  // The length of an axis, which counts from the end where it is negative.
  std::int64_t operator[](int axis) const { return lengths_[static_cast<std::size_t>(find(axis))]; }
  const std::vector<std::int64_t>& lengths() const { return lengths_; }
  // The axis counted from the beginning; an Error usage where there is none such.
  int find(int axis) const;
  TensorShape with(int axis, std::int64_t length) const;
  TensorShape without(int axis) const;
  // How many elements follow each other along the axis' inner axes; and how often that repeats outside of it.
  std::size_t inside(int axis) const;
  std::size_t outside(int axis) const;

  std::string to_string() const;  // "()", "(3,)", "(2, 3)"
  bool operator==(const TensorShape&) const = default;

 private:
  std::vector<std::int64_t> lengths_;
  std::size_t count_ = 1;
};

}  // namespace lockstep
