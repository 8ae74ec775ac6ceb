// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/compute/scratch.hpp"

#include <array>
#include <vector>

namespace lockstep::train::compute {

namespace {

struct alignas(64) CacheLine {
  std::byte bytes[64];
};

}  // namespace

void* scratch_memory(ScratchUse use, std::size_t bytes) {
  thread_local std::array<std::vector<CacheLine>, 6> pieces;
  std::vector<CacheLine>& piece = pieces[static_cast<std::size_t>(use)];
  const std::size_t lines = bytes / sizeof(CacheLine) + 1;
  if (piece.size() < lines) {
    piece.clear();  // keeps a new allocation from copying the old content
    piece.resize(lines);
  }
  return piece.data();
}

}  // namespace lockstep::train::compute
