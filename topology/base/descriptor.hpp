// SPDX-License-Identifier: Apache-2.0
// A file descriptor with an owner, so that no path out of a function leaves it open.
#pragma once

#include <unistd.h>

#include <utility>

namespace lockstep {

// Owns a file descriptor, or none (-1), and closes it at its end. Moves, and does not copy.
class OwnedDescriptor {
 public:
  OwnedDescriptor() = default;
  explicit OwnedDescriptor(int number) : number_(number) {}
  ~OwnedDescriptor() {
    if (number_ >= 0) ::close(number_);
  }
  OwnedDescriptor(OwnedDescriptor&& other) noexcept : number_(other.take()) {}
  OwnedDescriptor& operator=(OwnedDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  // Returns the descriptor, which the caller closes, and leaves this object without one.
  int take() { return std::exchange(number_, -1); }

 private:
  int number_ = -1;
};

}  // namespace lockstep
