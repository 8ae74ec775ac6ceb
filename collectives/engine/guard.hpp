// SPDX-License-Identifier: Apache-2.0
// Tracks the thread inside an engine: none, a thread of the user, or the engine's progress thread. Two threads of the
// user at once are an error that names both calls. This is a check, not a lock. The user's thread waits for the
// progress thread, which never stays long.
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <thread>

#include "collectives/node/call.hpp"

namespace lockstep {

// Says why a thread is inside an engine.
enum class EngineAction : std::uint8_t { starting, testing, waiting, dropping, progressing };

// Describes for people the action of a thread inside an engine. The file name must outlive the engine.
struct EngineActivity {
  EngineAction action = EngineAction::progressing;
  Collective collective = Collective::sendrecv;
  Origin origin = {};
};

// Returns for example "a wait for all_reduce (train.cpp:40)".
std::string to_text(const EngineActivity& activity);

// Admits one thread at a time.
class EngineGuard {
 public:
  // Enters for a thread of the user. Waits while the progress thread is inside. Throws Error usage if another thread of
  // the user is inside, or the same thread (from its own reduction). `name` is the communicator's name for that error.
  void enter(EngineActivity activity, std::string_view name) {
    EngineOwner seen = EngineOwner::nobody;
    if (!owner_.compare_exchange_strong(seen, EngineOwner::user, std::memory_order_acquire, std::memory_order_relaxed))
        [[unlikely]]
      enter_late(EngineActivity(activity), name);  // a copy, so that the fast path needs no memory for it
    act_.store(activity.action, std::memory_order_relaxed);
    collective_.store(activity.collective, std::memory_order_relaxed);
    file_.store(activity.origin.file, std::memory_order_relaxed);
    line_.store(activity.origin.line, std::memory_order_relaxed);
  }
  // Enters for the progress thread. Returns false if a thread is inside.
  bool try_enter_as_progress();
  // Returns true if a call of the user stays inside for a second, or if this thread is inside as the progress thread.
  // Such a call is this thread's own, or another thread is in a wait.
  bool is_occupied() const;
  // Leaves. Only the thread that is inside may call this.
  void leave() {
    progress_.store({}, std::memory_order_relaxed);
    owner_.store(EngineOwner::nobody, std::memory_order_release);
  }

 private:
  enum class EngineOwner : std::uint8_t { nobody, user, progress };
  void enter_late(const EngineActivity& activity, std::string_view name);
  [[noreturn]] void refuse(const EngineActivity& activity, const EngineActivity& other, std::string_view name) const;

  std::atomic<EngineOwner> owner_{EngineOwner::nobody};
  // Identifies the progress thread, so that it never waits for itself.
  std::atomic<std::thread::id> progress_{};
  // Describe the owner's call for an error in another thread, which may see a mixture of two calls.
  std::atomic<EngineAction> act_{};
  std::atomic<Collective> collective_{};
  std::atomic<const char*> file_{""};
  std::atomic<int> line_{0};
};

// Enters an engine, and leaves it at the end of the scope. Throws as EngineGuard::enter() does.
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
