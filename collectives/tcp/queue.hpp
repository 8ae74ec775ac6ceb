// SPDX-License-Identifier: Apache-2.0
// Holds a first-in, first-out queue that keeps its memory, so repeated rounds of messages allocate nothing.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep::tcp {

// Is a queue on a vector; it frees no place until it is empty.
template <class T>
class Queue {
 public:
  bool empty() const { return first_ == all_.size(); }
  std::size_t size() const { return all_.size() - first_; }
  T& front() { return all_[first_]; }
  const T& front() const { return all_[first_]; }
  T& operator[](std::size_t i) { return all_[first_ + i]; }
  const T& operator[](std::size_t i) const { return all_[first_ + i]; }
  void push_back(T value) { all_.push_back(std::move(value)); }
  void pop_front() {
    if (++first_ == all_.size()) clear();
  }
  void clear() {
    all_.clear();
    first_ = 0;
  }

 private:
  std::vector<T> all_;
  std::size_t first_ = 0;
};

}  // namespace lockstep::tcp
