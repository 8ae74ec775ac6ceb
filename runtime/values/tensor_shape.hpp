// SPDX-License-Identifier: Apache-2.0
// Holds the length of a tensor along each of its axes. A scalar has no axes. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// Holds the lengths of a tensor's axes. It changes only by assignment.
class TensorShape {
 public:
  // Limits the number of axes, so that members can exchange shapes of fixed length.
  static constexpr int most_axes = 16;

  TensorShape() = default;
  TensorShape(std::initializer_list<std::int64_t> lengths) : TensorShape(std::vector<std::int64_t>(lengths)) {}
  TensorShape(const TensorShape&) = default;
  TensorShape& operator=(const TensorShape&) = default;
  // Leaves the other shape with no elements, because a shape with one element would be a scalar.
  TensorShape(TensorShape&& other) noexcept
      : lengths_(std::move(other.lengths_)), count_(std::exchange(other.count_, 0)) {}
  TensorShape& operator=(TensorShape&& other) noexcept {
    lengths_ = std::move(other.lengths_);
    count_ = std::exchange(other.count_, 0);
    return *this;
  }
  // Throws Error usage for a negative length, too many axes, or too many elements.
  explicit TensorShape(std::vector<std::int64_t> lengths);

  // Returns the number of axes; 0 for a scalar.
  int rank() const { return static_cast<int>(lengths_.size()); }
  std::size_t count() const { return count_; }  // Returns the number of elements.
  // Returns the length of an axis. A negative number counts from the end. Throws Error usage for a wrong axis.
  std::int64_t operator[](int axis) const { return lengths_[static_cast<std::size_t>(find(axis))]; }
  const std::vector<std::int64_t>& lengths() const { return lengths_; }
  // Returns the number of the axis from the beginning. Throws Error usage for a wrong axis.
  int find(int axis) const;
  // Return the shape with another length of an axis, and without an axis.
  TensorShape with(int axis, std::int64_t length) const;
  TensorShape without(int axis) const;
  // Returns the shape of `number` rows from row `first` on. Throws Error usage for rows that are not there.
  TensorShape rows(std::int64_t first, std::int64_t number) const;
  // Return the number of elements in the axes after this one, and in the axes before it.
  std::size_t inside(int axis) const;
  std::size_t outside(int axis) const;

  std::string to_string() const;  // Returns "()", "(3,)" or "(2, 3)".
  bool operator==(const TensorShape&) const = default;

 private:
  std::vector<std::int64_t> lengths_;
  std::size_t count_ = 1;
};

}  // namespace lockstep
