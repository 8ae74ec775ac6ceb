// SPDX-License-Identifier: Apache-2.0
// What the tests of kernels share: values from the edges of their types among ordinary ones, the reference for
// buffers of any type, the kernels of every set of vector instructions that this processor has, and places in
// memory that are aligned to nothing, with guards around them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "collectives/kernels/streaming.hpp"
#include "collectives/kernels/table.hpp"
#include "collectives/spec.hpp"

namespace lockstep::test {

using Random = std::mt19937_64;
using Bytes = std::vector<std::uint8_t>;

// What the reference does with a buffer of one type. divide and scale are missing where there is no sum.
struct Reference {
  // `rare`: how seldom an edge comes up. Sums of many would be NaN too often otherwise.
  Bytes (*any_values)(Random& random, std::size_t count, unsigned rare);
  Bytes (*reduce)(ReduceOp op, const std::vector<Bytes>& sources);
  Bytes (*divide)(const Bytes& values, std::int64_t divisor);
  Bytes (*scale)(const Bytes& values, double factor);
};

Reference reference_of(DataType type);

// One table for each target. The last is what the library takes by itself.
const std::vector<KernelTable>& tables();

// All but the user's own.
std::vector<DataType> all_types();

// While it lives, results of any size are streamed, or of none.
class Streaming {
 public:
  explicit Streaming(bool always) : before_(streaming_size().exchange(always ? 0 : SIZE_MAX)) {}
  ~Streaming() { streaming_size() = before_; }
  Streaming(const Streaming&) = delete;
  Streaming& operator=(const Streaming&) = delete;

 private:
  std::size_t before_;
};

// A stretch of bytes with guards before and behind it, at an address that is `shift` away from an aligned one.
class Place {
 public:
  static constexpr std::size_t guard_bytes = 64;
  static constexpr std::uint8_t guard = 0xa5;

  Place(std::size_t bytes, std::size_t shift)
      : memory_(bytes + shift + 2 * guard_bytes + alignment, guard), bytes_(bytes), begin_(guard_bytes + shift) {
    begin_ += (alignment - reinterpret_cast<std::uintptr_t>(memory_.data()) % alignment) % alignment;
  }

  std::uint8_t* data() { return memory_.data() + begin_; }
  void fill(const Bytes& source) { std::ranges::copy(source, data()); }
  void spoil() { std::memset(data(), guard, bytes_); }
  bool holds(const Bytes& expected) const {
    return bytes_ == 0 || std::memcmp(memory_.data() + begin_, expected.data(), bytes_) == 0;
  }
  bool is_guarded() const {
    const auto intact = [](std::uint8_t byte) { return byte == guard; };
    const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(begin_);
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes_);
    const auto width = static_cast<std::ptrdiff_t>(guard_bytes);
    return std::all_of(begin - width, begin, intact) && std::all_of(end, end + width, intact);
  }

 private:
  static constexpr std::size_t alignment = 64;
  Bytes memory_;
  std::size_t bytes_;
  std::size_t begin_;
};

}  // namespace lockstep::test
