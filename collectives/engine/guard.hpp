// SPDX-License-Identifier: Apache-2.0
// Who is inside an engine: nobody, one thread of the user, or its progress thread. Two threads of the user at once
// are told so, both calls named; this is a check, not a lock. The user waits for the progress thread, which never
// stays long.
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <thread>

#include "collectives/node/call.hpp"

namespace lockstep {

enum class EngineAction : std::uint8_t { starting, testing, waiting, dropping, progressing };

// What a thread does inside, for people. The file name outlives the engine.
struct EngineActivity {
  EngineAction action = EngineAction::progressing;
  Collective collective = Collective::exchange;
  Origin origin = {};
};

std::string to_text(const EngineActivity& activity);  // "a wait for all_reduce (train.cpp:40)"

class EngineGuard {
 public:
  // Throws Error usage where another thread of the user is inside, or the same one (from its own reduction).
  void enter(EngineActivity activity, std::string_view name) {
    EngineOwner seen = EngineOwner::nobody;
    if (!owner_.compare_exchange_strong(seen, EngineOwner::user, std::memory_order_acquire, std::memory_order_relaxed))
        [[unlikely]]
      enter_late(EngineActivity(activity), name);  // a copy, so that the usual way needs no memory for it
    act_.store(activity.action, std::memory_order_relaxed);
    collective_.store(activity.collective, std::memory_order_relaxed);
    file_.store(activity.origin.file, std::memory_order_relaxed);
    line_.store(activity.origin.line, std::memory_order_relaxed);
  }
  bool try_enter_as_progress();
  // Whether a user's call stays inside for a second, or this thread makes progress. Then it is this thread's own call,
  // or another thread is in a wait.
  bool is_occupied() const;
  void leave() {
    progress_.store({}, std::memory_order_relaxed);
    owner_.store(EngineOwner::nobody, std::memory_order_release);
  }

 private:
  enum class EngineOwner : std::uint8_t { nobody, user, progress };
  void enter_late(const EngineActivity& activity, std::string_view name);
  [[noreturn]] void refuse(const EngineActivity& activity, const EngineActivity& other, std::string_view name) const;

  std::atomic<EngineOwner> owner_{EngineOwner::nobody};
  std::atomic<std::thread::id> progress_{};  // who makes progress, so that it never waits for itself
  // What the owner does, as far as another thread may see; it may see a mixture of two calls.
  std::atomic<EngineAction> act_{};
  std::atomic<Collective> collective_{};
  std::atomic<const char*> file_{""};
  std::atomic<int> line_{0};
};

// Inside as long as it lives.
class EngineScope {
 public:
  EngineScope(EngineGuard& guard, EngineActivity activity, std::string_view name) : guard_(guard) {
    guard.enter(activity, name);
  }
  ~EngineScope() { guard_.leave(); }
  EngineScope(const EngineScope&) = delete;
  EngineScope& operator=(const EngineScope&) = delete;

 private:
  EngineGuard& guard_;
};

}  // namespace lockstep
