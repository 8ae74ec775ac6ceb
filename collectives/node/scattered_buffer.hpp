// SPDX-License-Identifier: Apache-2.0
// Treats data in several places as one buffer, such as the tensors of a batch. Bytes are counted through all of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "collectives/kernels/copy.hpp"

namespace lockstep {

// Lists the pieces of a buffer in their order. It does not own their memory, which must outlive its use.
class ScatteredBuffer {
 public:
  // Appends a piece of memory; an empty one is left out.
  void add(void* data, std::size_t bytes) {
    if (bytes == 0) return;
    all_.push_back({total_, static_cast<std::byte*>(data), bytes});
    total_ += bytes;
  }

  // True if some memory is in it twice; then it cannot be read and written piece by piece.
  bool overlaps_itself() const {
    std::vector<BufferPiece> sorted = all_;
    std::ranges::sort(sorted, std::less<>(), &BufferPiece::data);
    const auto meets = [](const BufferPiece& a, const BufferPiece& b) { return a.data + a.bytes > b.data; };
    return std::ranges::adjacent_find(sorted, meets) != sorted.end();
  }

  // Calls use(address, offset, bytes) for every contiguous part of the range, in order. The second argument is the
  // part's offset within the range. The range [offset, offset + bytes) must lie within the buffer.
  template <class Use>
  void in_range(std::size_t offset, std::size_t bytes, const Use& use) const {
    auto piece = std::ranges::upper_bound(all_, offset, {}, &BufferPiece::begin);
    if (piece != all_.begin()) --piece;
    for (std::size_t done = 0; done < bytes; ++piece) {
      const std::size_t skip = offset + done - piece->begin;
      const std::size_t here = std::min(piece->bytes - skip, bytes - done);
      use(piece->data + skip, done, here);
      done += here;
    }
  }

  // Copies a range to or from contiguous memory.
  void read(std::byte* to, std::size_t offset, std::size_t bytes) const {
    in_range(offset, bytes,
             [to](const std::byte* from, std::size_t at, std::size_t here) { copy_bytes(to + at, from, here); });
  }
  void write(std::size_t offset, const std::byte* from, std::size_t bytes) const {
    in_range(offset, bytes,
             [from](std::byte* to, std::size_t at, std::size_t here) { copy_bytes(to, from + at, here); });
  }
  // Returns the address of the range if it is contiguous; otherwise null.
  std::byte* whole(std::size_t offset, std::size_t bytes) const {
    std::byte* found = nullptr;
    in_range(offset, bytes, [&](std::byte* data, std::size_t /*at*/, std::size_t here) {
      if (here == bytes) found = data;
    });
    return found;
  }

 private:
  struct BufferPiece {
    std::size_t begin;
    std::byte* data;
    std::size_t bytes;
  };
  std::vector<BufferPiece> all_;
  std::size_t total_ = 0;
};

}  // namespace lockstep
