// SPDX-License-Identifier: Apache-2.0
// Chooses how a member writes data that others will read: through its caches, or past them. A line that another core
// has read must be fetched back before a write, which takes long if the cores are far apart. A write past the caches
// need not wait for it, but the data are then read from memory. The distance of cores can change while a program runs,
// since the cores of a virtual machine move. So writes through the caches are timed, one of eight while they are fast:
// if they are slow the next ones go past, and now and then one tries again. Each member decides for itself.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "collectives/kernels/copy.hpp"
#include "collectives/node/tuning.hpp"

namespace lockstep::node {

// Holds one member's recent write times. One thread at a time may use it.
class WriteStrategy {
 public:
  // Is the smallest size in bytes that is timed; in a smaller write, the clock would take more than a tenth of the
  // time.
  static constexpr std::size_t timed_from = 4096;
  // Is a limit that no write exceeds, but under which writes are still timed.
  static constexpr std::size_t never_slow = never - 1;

  // Copies `bytes` bytes, and times the copy if that is worth it. A write through the caches is slow if it takes more
  // than `slow` picoseconds per byte. With 0 all writes go past the caches; with `never` none does, and none is timed.
  void write(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t slow) {
    if (is_off_) return;
    if (bytes < timed_from || slow == never) return copy_bytes(to, from, bytes);
    if (bypasses_caches(bytes, slow)) {
      count_bypass();
      return stream_bytes(to, from, bytes);
    }
    if (untimed_ > 0) {
      --untimed_;
      return copy_bytes(to, from, bytes);
    }
    const auto begin = std::chrono::steady_clock::now();
    copy_bytes(to, from, bytes);
    const std::chrono::duration<double, std::pico> taken = std::chrono::steady_clock::now() - begin;
    note(taken.count() / static_cast<double>(bytes), static_cast<double>(bytes), slow);
  }
  // True if the next write of this size would go past the caches.
  bool bypasses_caches(std::size_t bytes, std::size_t slow) const {
    return bytes >= timed_from && slow != never && (left_ > 0 || slow == 0);
  }
  // Counts data that went another way because of that as a write past the caches, so that the caches are tried again.
  void count_bypass() { left_ -= left_ > 0 ? 1 : 0; }

  // Returns the mean picoseconds per byte of all timed writes since forget(); 0 if there were none.
  double mean() const { return bytes_ > 0 ? picoseconds_ / bytes_ : 0; }
  void forget() { *this = WriteStrategy(); }
  // Leaves all data out, for simulations of time alone. Then nothing may depend on data.
  void turn_off() { is_off_ = true; }
  bool is_off() const { return is_off_; }

 private:
  void note(double picoseconds, double bytes, std::size_t slow) {
    constexpr int in_a_row = 3;  // a single slow write may be the system's doing
    // Counts the writes past the caches before one tries the caches again.
    constexpr int tried_after = 128;
    // Counts the writes after a fast one that are not timed, since the clock takes a tenth of a short one.
    constexpr int untimed_after = 7;
    picoseconds_ += picoseconds * bytes;
    bytes_ += bytes;
    slow_writes_ = picoseconds > static_cast<double>(slow) ? std::min(slow_writes_ + 1, in_a_row) : 0;
    untimed_ = slow_writes_ == 0 && slow != never_slow ? untimed_after : 0;
    if (slow_writes_ == in_a_row) left_ = tried_after;
  }

  double picoseconds_ = 0;
  double bytes_ = 0;
  int slow_writes_ = 0;
  bool is_off_ = false;
  int left_ = 0;     // writes that go past the caches before one tries again
  int untimed_ = 0;  // writes before the next timed one
};

}  // namespace lockstep::node
