// SPDX-License-Identifier: Apache-2.0
// How a member writes what others will read: through its caches, or past them. A line that another core has read must
// be had back from there for writing, which takes long where the cores are far apart; past the caches it need not, but
// then it is read from memory. How far apart they are can change while a program runs (the cores of a virtual machine
// move about), so writes through the caches are timed: where they are slow the next ones go past, and now and then one
// tries again. Each member decides for itself; nobody else need know.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "collectives/kernels/copy.hpp"
#include "collectives/node/tuning.hpp"

namespace lockstep::node {

class WriteStrategy {
 public:
  static constexpr std::size_t timed_from = 4096;  // bytes: looking at the clock takes less than a tenth of it
  static constexpr std::size_t never_slow = never - 1;

  // `slow`: picoseconds of a byte. From so many on a write through the caches is slow; never: not looked at.
  void write(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t slow) {
    if (bytes < timed_from || slow == never) return copy_bytes(to, from, bytes);
    if (goes_past(bytes, slow)) {
      left_ -= left_ > 0 ? 1 : 0;
      return stream_bytes(to, from, bytes);
    }
    const auto begin = std::chrono::steady_clock::now();
    copy_bytes(to, from, bytes);
    const std::chrono::duration<double, std::pico> taken = std::chrono::steady_clock::now() - begin;
    note(taken.count() / static_cast<double>(bytes), static_cast<double>(bytes), slow);
  }
  // Whether the next one would go past them.
  bool goes_past(std::size_t bytes, std::size_t slow) const {
    return bytes >= timed_from && slow != never && (left_ > 0 || slow == 0);
  }

  // Of all that went through the caches since then, picoseconds of a byte.
  double mean() const { return bytes_ > 0 ? picoseconds_ / bytes_ : 0; }
  void forget() { *this = WriteStrategy(); }

 private:
  void note(double picoseconds, double bytes, std::size_t slow) {
    constexpr int in_a_row = 3;  // one of them is the system's doing
    constexpr int tried_after = 128;
    picoseconds_ += picoseconds * bytes;
    bytes_ += bytes;
    slow_ones_ = picoseconds > static_cast<double>(slow) ? std::min(slow_ones_ + 1, in_a_row) : 0;
    if (slow_ones_ == in_a_row) left_ = tried_after;
  }

  double picoseconds_ = 0;
  double bytes_ = 0;
  int slow_ones_ = 0;
  int left_ = 0;  // to go past them, before one tries again
};

}  // namespace lockstep::node
