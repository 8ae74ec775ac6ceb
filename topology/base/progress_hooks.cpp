// SPDX-License-Identifier: Apache-2.0
// Keeps the list of progress hooks and runs those of the calling thread, and keeps the functions that let MPI work.
#include "topology/base/progress_hooks.hpp"

#include <unistd.h>

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

struct OutsideFunctions {
  std::mutex mutex;
  std::vector<OutsideProgress*> all;
  int pauses = 0;
  bool is_stopped = false;
};

// Is false if there is no function or all are stopped. A wait then makes no list, because that would allocate.
std::atomic<bool> has_outside{false};

// Is never destroyed, as above.
OutsideFunctions& outside() {
  static OutsideFunctions* const known = new OutsideFunctions;
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

OutsideProgress::OutsideProgress(std::function<void()> move) : move_(std::move(move)), process_(::getpid()) {
  OutsideFunctions& known = outside();
  const std::lock_guard lock(known.mutex);
  known.all.push_back(this);
  has_outside = !known.is_stopped;
}

OutsideProgress::~OutsideProgress() {
  OutsideFunctions& known = outside();
  const std::lock_guard lock(known.mutex);
  std::erase(known.all, this);
  has_outside = !known.is_stopped && !known.all.empty();
}

void run_outside_progress() {
  if (!has_outside) return;
  OutsideFunctions& known = outside();
  const std::unique_lock lock(known.mutex, std::try_to_lock);
  if (!lock.owns_lock() || !has_outside || known.pauses > 0) return;
  const OutsideProgress& last = *known.all.back();
  if (last.process_ == ::getpid()) last.move_();
}

void stop_outside_progress() {
  OutsideFunctions& known = outside();
  const std::lock_guard lock(known.mutex);
  known.is_stopped = true;
  has_outside = false;
}

OutsidePause::OutsidePause() {
  const std::lock_guard lock(outside().mutex);
  ++outside().pauses;
}

OutsidePause::~OutsidePause() {
  const std::lock_guard lock(outside().mutex);
  --outside().pauses;
}

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
