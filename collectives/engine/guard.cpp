// SPDX-License-Identifier: Apache-2.0
// Handles the slow paths of EngineGuard: a second thread comes while another is inside.
#include "collectives/engine/guard.hpp"

#include <chrono>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

std::string to_text(const EngineActivity& activity) {
  if (activity.action == EngineAction::progressing) return "a call of progress";
  constexpr std::string_view names[] = {"the start of ", "a test of ", "a wait for ", "the end of "};
  std::string all = text(names[static_cast<std::size_t>(activity.action)], to_string(activity.collective));
  if (activity.origin.line > 0) all += text(" (", activity.origin.file, ':', activity.origin.line, ')');
  return all;
}

// Enters after another thread was seen inside.
void EngineGuard::enter_late(const EngineActivity& activity, std::string_view name) {
  EngineOwner seen = EngineOwner::nobody;
  while (!owner_.compare_exchange_weak(seen, EngineOwner::user, std::memory_order_acquire, std::memory_order_relaxed)) {
    if (seen == EngineOwner::user) {
      const EngineActivity other{act_.load(std::memory_order_relaxed),
                                 collective_.load(std::memory_order_relaxed),
                                 {file_.load(std::memory_order_relaxed), line_.load(std::memory_order_relaxed)}};
      refuse(activity, other, name);
    }
    if (seen == EngineOwner::progress) {
      if (progress_.load(std::memory_order_relaxed) == std::this_thread::get_id()) refuse(activity, {}, name);
      std::this_thread::yield();
    }
    seen = EngineOwner::nobody;
  }
}

void EngineGuard::refuse(const EngineActivity& activity, const EngineActivity& other, std::string_view name) const {
  throw Error(Code::usage,
              text("the communicator \"", name, "\" is in ", to_text(other), ", and another thread (or the user's ",
                   "own reduction inside that call) makes ", to_text(activity)),
              "give every thread a communicator of its own (duplicate), or let one thread make the calls");
}

bool EngineGuard::is_occupied() const {
  constexpr std::chrono::seconds longest{1};
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    const EngineOwner owner = owner_.load(std::memory_order_acquire);
    if (owner == EngineOwner::nobody) return false;
    if (owner == EngineOwner::progress) return progress_.load(std::memory_order_relaxed) == std::this_thread::get_id();
    if (std::chrono::steady_clock::now() - begin > longest) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

bool EngineGuard::try_enter_as_progress() {
  EngineOwner seen = EngineOwner::nobody;
  if (!owner_.compare_exchange_strong(seen, EngineOwner::progress, std::memory_order_acquire,
                                      std::memory_order_relaxed))
    return false;
  progress_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  return true;
}

}  // namespace lockstep
