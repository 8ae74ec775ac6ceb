// SPDX-License-Identifier: Apache-2.0
// Keeps the list of engines whose memory can be returned.
#include "collectives/engine/idle_memory.hpp"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

struct IdleMemories {
  std::mutex mutex;
  std::vector<IdleMemory*> all;
  std::chrono::steady_clock::time_point looked_at{};
};

// Is never destroyed, because communicators may outlive main.
IdleMemories& idle_memories() {
  static IdleMemories* const known = new IdleMemories;
  return *known;
}

}  // namespace

std::atomic<IdleMemory*>& IdleMemory::last_used() {
  static std::atomic<IdleMemory*> last{nullptr};
  return last;
}

IdleMemory::IdleMemory(std::function<bool()> give_back) : give_back_(std::move(give_back)) {
  IdleMemories& known = idle_memories();
  const std::lock_guard lock(known.mutex);
  known.all.push_back(this);
}

IdleMemory::~IdleMemory() {
  IdleMemories& known = idle_memories();
  const std::lock_guard lock(known.mutex);
  std::erase(known.all, this);
  IdleMemory* mine = this;
  last_used().compare_exchange_strong(mine, nullptr);
}

// The engine before this one was in use up to now, although it said so only at its first use.
void IdleMemory::note_in_list() {
  IdleMemories& known = idle_memories();
  const std::unique_lock lock(known.mutex, std::try_to_lock);
  if (!lock.owns_lock()) return;  // another thread is at it; there is a next time
  const auto now = Clock::now();
  IdleMemory* const before = last_used().exchange(this);
  if (before != nullptr) before->used_at_ = now;
  used_at_ = now;
  is_held_ = true;
  if (now - known.looked_at < longest / 2) return;
  known.looked_at = now;
  for (IdleMemory* const each : known.all) {
    if (each != this && each->is_held_ && now - each->used_at_ > longest && each->give_back_()) each->is_held_ = false;
  }
}

}  // namespace lockstep
