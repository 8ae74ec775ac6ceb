// SPDX-License-Identifier: Apache-2.0
// How a message that is longer than MPI's counts allow travels: in parts. Both sides cut alike, and such that messages
// of different lengths differ in the length of a part both have: the first tells how many there are, the last tells
// the rest. So a wrong length is seen for long messages too, and never becomes a part that nobody waits for.
#pragma once

#include <cstddef>

namespace lockstep {

class Chunks {
 public:
  Chunks(std::size_t bytes, std::size_t limit)
      : bytes_(bytes), limit_(limit), count_(bytes <= limit + 1 ? 1 : (bytes + limit) / (limit + 1)) {}

  std::size_t count() const { return count_; }
  std::size_t offset(std::size_t part) const { return part == 0 ? 0 : limit_ + count_ + (part - 1) * limit_; }
  std::size_t size(std::size_t part) const { return (part + 1 == count_ ? bytes_ : offset(part + 1)) - offset(part); }

 private:
  std::size_t bytes_;
  std::size_t limit_;  // the first part is longer by their number, at least 2; a message alone by 1 at most
  std::size_t count_;
};

}  // namespace lockstep
