// SPDX-License-Identifier: Apache-2.0
// Cuts a message that is longer than MPI's counts allow into parts. Both sides cut alike, so they see a wrong length of
// a long message, too. The first part tells the number of parts, the last one the rest. So two messages of different
// lengths differ in a part that both have, and no rank waits for a part that never comes.
#pragma once

#include <cstddef>

namespace lockstep {

// Describes the parts of a message of `bytes`. The length `limit` is in bytes; parts may be a little longer.
class Chunks {
 public:
  Chunks(std::size_t bytes, std::size_t limit)
      : bytes_(bytes), limit_(limit), count_(bytes <= limit + 1 ? 1 : (bytes + limit) / (limit + 1)) {}

  // Return the number of parts, and the offset and size in bytes of one part.
  std::size_t count() const { return count_; }
  std::size_t offset(std::size_t part) const { return part == 0 ? 0 : limit_ + count_ + (part - 1) * limit_; }
  std::size_t size(std::size_t part) const { return (part + 1 == count_ ? bytes_ : offset(part + 1)) - offset(part); }

 private:
  std::size_t bytes_;
  // Limits the later parts. The first part is longer by the number of parts, at least 2. A message in one part is
  // longer by at most 1.
  std::size_t limit_;
  std::size_t count_;
};

}  // namespace lockstep
