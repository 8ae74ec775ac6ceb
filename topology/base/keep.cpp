// SPDX-License-Identifier: Apache-2.0
// Keeps memory for the life of the process, in a list that is never destroyed.
#include "topology/base/keep.hpp"

#include <mutex>
#include <vector>

namespace lockstep {

void keep_forever(std::shared_ptr<const void> memory) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<const void>>();
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(memory));
}

}  // namespace lockstep
