// SPDX-License-Identifier: Apache-2.0
// Compares the reduction kernels with the machine's copy, out of cache. Each kernel takes turns with a memcpy of as
// many bytes, so that both see the same neighbours. It prints the ratio of their bandwidths. The exit code is 3 if the
// median of an f32 or f64 sum that is not in place is under 0.9. Then it compares our copy with the C library's in the
// first caches. The buffers have the same offset in their pages, and then different offsets.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <vector>

#include "collectives/kernels/copy.hpp"
#include "collectives/kernels/kernels.hpp"
#include "collectives/kernels/streaming.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace {

using namespace lockstep;
using Clock = std::chrono::steady_clock;

constexpr int repetitions = 21;
constexpr std::size_t buffers = 5;  // four sources and a destination

struct KernelCase {
  DataType type;
  ReduceOp op;
  int sources;  // 2 is the two-way kernel
  bool in_place;
};

constexpr std::array cases = {
    KernelCase{DataType::f32, ReduceOp::sum, 2, false}, KernelCase{DataType::f64, ReduceOp::sum, 2, false},
    KernelCase{DataType::f32, ReduceOp::sum, 2, true},  KernelCase{DataType::f64, ReduceOp::sum, 2, true},
    KernelCase{DataType::f32, ReduceOp::sum, 4, false}, KernelCase{DataType::f64, ReduceOp::sum, 4, false},
    KernelCase{DataType::f32, ReduceOp::max, 2, false}, KernelCase{DataType::bf16, ReduceOp::sum, 2, false},
    KernelCase{DataType::f16, ReduceOp::sum, 2, false}, KernelCase{DataType::i32, ReduceOp::sum, 2, false},
    KernelCase{DataType::u8, ReduceOp::max, 2, false},  KernelCase{DataType::c64, ReduceOp::prod, 2, false},
};

// Holds one range of memory for the buffers and both halves of the copy.
struct Arena {
  std::unique_ptr<std::byte[]> memory;
  std::size_t each;  // bytes of a buffer

  std::byte* buffer(std::size_t index) const { return memory.get() + index * each; }
};

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double time_kernel(const Arena& arena, const KernelCase& which) {
  const std::size_t count = arena.each / size_of(which.type);
  const std::array<const void*, 4> sources = {arena.buffer(1), arena.buffer(2), arena.buffer(3), arena.buffer(4)};
  const Kernel& kernel = *find_kernel(which.type, which.op);
  std::byte* target = arena.buffer(which.in_place ? 1 : 0);
  const auto begin = Clock::now();
  if (which.sources == 2)
    kernel.two(target, sources[0], sources[1], count);
  else
    kernel.many(target, sources.data(), which.sources, count);
  return seconds_since(begin);
}

double time_copy(const Arena& arena, std::size_t bytes) {
  const auto begin = Clock::now();
  std::memcpy(arena.memory.get(), arena.memory.get() + buffers * arena.each / 2, bytes);
  return seconds_since(begin);
}

// Fills the sources with small positive numbers of every type, so that nothing overflows or becomes subnormal.
void fill(const Arena& arena, DataType type) {
  constexpr std::array<float, 2> floats = {1.0F, 1.5F};
  constexpr std::array<double, 2> doubles = {1.0, 1.5};
  std::byte* const begin = arena.memory.get();
  const std::size_t bytes = buffers * arena.each;
  if (type == DataType::f64) {
    for (std::size_t i = 0; i < bytes / 8; ++i) std::memcpy(begin + i * 8, &doubles[i % 2], 8);
  } else if (type == DataType::f32 || type == DataType::c64) {
    for (std::size_t i = 0; i < bytes / 4; ++i) std::memcpy(begin + i * 4, &floats[i % 2], 4);
  } else {
    std::memset(begin, 0x3c, bytes);
  }
}

double quantile(std::vector<double> values, double part) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(std::lround(part * static_cast<double>(values.size() - 1)))];
}

// Returns true if the case meets its bound.
bool measure(const Arena& arena, const KernelCase& which) {
  fill(arena, which.type);
  const auto parts = static_cast<std::size_t>(which.sources) + 1;
  const std::size_t copied = arena.each * parts / 2;  // bytes read and written
  std::vector<double> ratios;
  std::vector<double> rates;
  time_kernel(arena, which);
  for (int i = 0; i < repetitions; ++i) {
    // They take turns, and each is first in half of the rounds.
    double kernel = 0;
    if (i % 2 == 0) kernel = time_kernel(arena, which);
    const double copy = time_copy(arena, copied);
    if (i % 2 != 0) kernel = time_kernel(arena, which);
    ratios.push_back(copy / kernel);
    rates.push_back(static_cast<double>(arena.each * parts) / kernel / 1e9);
  }
  const double median = quantile(ratios, 0.5);
  std::printf("%-5s %-5s of %d %-12s %6.2f   %4.2f .. %4.2f   %6.1f GB/s\n", std::string(to_string(which.type)).c_str(),
              std::string(to_string(which.op)).c_str(), which.sources, which.in_place ? "in place" : "", median,
              quantile(ratios, 0.25), quantile(ratios, 0.75), quantile(rates, 0.5));
  const bool promised =
      which.op == ReduceOp::sum && !which.in_place && (which.type == DataType::f32 || which.type == DataType::f64);
  return !promised || median >= 0.9;
}

double time_copies(const Arena& arena, std::size_t apart, std::size_t bytes, bool ours) {
  constexpr int copies = 200;
  std::byte* const target = arena.buffer(1) + apart;
  const auto begin = Clock::now();
  for (int i = 0; i < copies; ++i) {
    if (ours)
      copy_bytes(target, arena.buffer(0), bytes);
    else
      std::memcpy(target, arena.buffer(0), bytes);
    asm volatile("" : : "r"(target) : "memory");
  }
  return seconds_since(begin) / copies;
}

void compare_copies(const Arena& arena) {
  std::cout << text("time of the C library's memcpy divided by that of our copy: median and quartiles of ", repetitions,
                    "; time of ours\n")
            << std::flush;
  for (const std::size_t bytes : {std::size_t{4} << 10U, std::size_t{32} << 10U, std::size_t{256} << 10U}) {
    for (const std::size_t apart : {std::size_t{0}, std::size_t{16}, std::size_t{2112}}) {
      std::vector<double> ratios;
      std::vector<double> times;
      time_copies(arena, apart, bytes, true);
      for (int i = 0; i < repetitions; ++i) {
        const double first = time_copies(arena, apart, bytes, i % 2 == 0);
        const double second = time_copies(arena, apart, bytes, i % 2 != 0);
        times.push_back(i % 2 == 0 ? first : second);
        ratios.push_back((i % 2 == 0 ? second : first) / times.back());
      }
      const std::string where = apart == 0 ? "at the same place" : text(apart, " bytes further on");
      std::printf("%-8s %-26s %6.2f   %4.2f .. %4.2f   %6.2f us\n", format_bytes(bytes).c_str(), where.c_str(),
                  quantile(ratios, 0.5), quantile(ratios, 0.25), quantile(ratios, 0.75), quantile(times, 0.5) * 1e6);
    }
  }
}

// Returns four caches or 128 MiB for a buffer, whichever is larger, but for all of them at most half of the free
// memory.
std::size_t buffer_bytes() {
  const auto pages = static_cast<std::size_t>(std::max(0L, sysconf(_SC_AVPHYS_PAGES)));
  const std::size_t free = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t wanted = std::max(4 * last_cache_size(), std::size_t{128} << 20U);
  return std::min(wanted, free / 2 / buffers) / 4096 * 4096;
}

}  // namespace

int main() {
  const std::size_t each = buffer_bytes();
  const Arena arena{std::make_unique<std::byte[]>(buffers * each), each};
  std::cout << text("vector instructions ", kernel_target(), ", last cache ", format_bytes(last_cache_size()),
                    ", buffers of ", format_bytes(each), ", streamed from ", format_bytes(streaming_size()), "\n");
  std::cout << text("bandwidth as a part of memcpy's: median and quartiles of ", repetitions,
                    "; bandwidth of the kernel\n")
            << std::flush;
  bool good = true;
  for (const KernelCase& each_case : cases) good = measure(arena, each_case) && good;
  compare_copies(arena);
  return static_cast<int>(good ? Exit::well : Exit::gate);
}
