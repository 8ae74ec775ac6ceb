// SPDX-License-Identifier: Apache-2.0
// Reads this process's mappings from /proc/self/maps.
#include "topology/base/mapped.hpp"

#include <charconv>
#include <cstdint>
#include <fstream>
#include <string>

namespace lockstep {

// Reads lines of "7f00-7f80 rw-p ...", which come by rising addresses.
bool is_mapped(const void* data, std::size_t bytes, Access access) {
  constexpr int hexadecimal = 16;
  auto next = reinterpret_cast<std::uintptr_t>(data);  // end of the mapped part so far
  const std::uintptr_t end = next + bytes;
  std::ifstream maps("/proc/self/maps");
  if (!maps) return true;
  for (std::string line; next < end && std::getline(maps, line);) {
    std::uintptr_t first = 0;
    std::uintptr_t last = 0;
    const char* const stop = line.data() + line.size();
    const auto dash = std::from_chars(line.data(), stop, first, hexadecimal);
    if (dash.ptr == stop) continue;
    const auto space = std::from_chars(dash.ptr + 1, stop, last, hexadecimal);
    if (last <= next) continue;
    if (first > next || stop - space.ptr < 3) return false;
    if (space.ptr[access == Access::read ? 1 : 2] == '-') return false;
    next = last;
  }
  return next >= end;
}

}  // namespace lockstep
