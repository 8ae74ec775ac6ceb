// SPDX-License-Identifier: Apache-2.0
// Finds the size of the last cache from the system's files, or else from the C library.
#include "collectives/kernels/streaming.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

namespace lockstep {
namespace {

// Returns the largest cache in /sys/devices/system/cpu/cpu0/cache/, where a size reads like "32768K"; 0 if there is
// none.
std::size_t size_from_files() {
  std::size_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    std::size_t number = 0;
    char unit = 0;
    if (!(file >> number)) continue;
    file >> unit;
    largest = std::max(largest, number << (unit == 'K' ? 10U : unit == 'M' ? 20U : 0U));
  }
  return largest;
}

// Asks the C library second: for some processors it adds up caches that no single core can use.
std::size_t size_from_system() {
  std::size_t size = size_from_files();
#ifdef _SC_LEVEL3_CACHE_SIZE
  for (const int level : {_SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (size == 0) size = static_cast<std::size_t>(std::max(0L, sysconf(level)));
  }
#endif
  constexpr std::size_t guess = std::size_t{32} << 20U;  // common in servers of the 2020s
  return size > 0 ? size : guess;
}

}  // namespace

std::size_t last_cache_size() {
  static const std::size_t size = size_from_system();
  return size;
}

std::atomic<std::size_t>& streaming_size() {
  static std::atomic<std::size_t> size{last_cache_size()};
  return size;
}

}  // namespace lockstep
