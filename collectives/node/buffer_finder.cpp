// SPDX-License-Identifier: Apache-2.0
// Looks in symmetric memory first, then at the process.
#include "collectives/node/buffer_finder.hpp"

#include <utility>

namespace lockstep::node {

BufferFinder::BufferFinder(int index, int size, bool one_process, ProcessMemoryReader reader)
    : one_process_(one_process), registry_(index, size), reader_(std::move(reader)) {}

BufferAddress BufferFinder::find(const void* data, std::size_t bytes, bool is_readable) {
  if (const BufferAddress place = registry_.find(data, bytes); place.memory != 0) return place;
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (one_process_) return {BufferAddress::threads, address};
  return is_readable && reader_.could_be_read(data, bytes) ? BufferAddress{BufferAddress::other_process, address}
                                                           : BufferAddress();
}

std::byte* BufferFinder::reach(int member, const BufferAddress& place, const GenerationCounts& known_to_all) const {
  if (place.memory == 0 || place.memory == BufferAddress::other_process || place.memory == BufferAddress::mapped)
    return nullptr;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of this process, told as a number
  if (place.memory == BufferAddress::threads) return reinterpret_cast<std::byte*>(place.offset);
  return registry_.reach(member, place, known_to_all);
}

}  // namespace lockstep::node
