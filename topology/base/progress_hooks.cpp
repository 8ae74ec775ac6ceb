// SPDX-License-Identifier: Apache-2.0
// Keeps the list of progress hooks, and runs those of the calling thread.
#include "topology/base/progress_hooks.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

namespace lockstep {
namespace {

struct ProgressHooks {
  std::recursive_mutex mutex;  // recursive: a hook may call a function of the user's that ends another hook
  std::vector<ProgressHook*> all;
};

// Is never destroyed, because communicators may outlive main.
ProgressHooks& hooks() {
  static ProgressHooks* const known = new ProgressHooks;
  return *known;
}

thread_local bool moving = false;
thread_local int busy_here = 0;  // an upper bound: a hook that another thread ended is still counted

}  // namespace

ProgressHook::ProgressHook(std::function<void()> move) : move_(std::move(move)) {
  ProgressHooks& known = hooks();
  const std::lock_guard lock(known.mutex);
  known.all.push_back(this);
}

ProgressHook::~ProgressHook() {
  ProgressHooks& known = hooks();
  const std::lock_guard lock(known.mutex);
  std::erase(known.all, this);
  idle();
}

void ProgressHook::begin() {
  thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  busy_.store(true, std::memory_order_release);
  ++busy_here;
}

void ProgressHook::end() {
  busy_.store(false, std::memory_order_relaxed);
  --busy_here;
}

bool has_busy_hooks() { return busy_here > 0; }

void run_progress_hooks(int but) {
  if (moving || busy_here <= but) return;
  ProgressHooks& known = hooks();
  const std::unique_lock lock(known.mutex, std::try_to_lock);
  if (!lock.owns_lock()) return;  // another thread moves its own; there is a next time
  moving = true;
  // NOLINTNEXTLINE(modernize-loop-convert): the list may change under way
  for (std::size_t i = 0; i < known.all.size(); ++i) {
    ProgressHook& each = *known.all[i];
    if (each.is_mine()) each.move_();
  }
  moving = false;
}

}  // namespace lockstep
