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

// What a thread does inside, for people. The file name outlives the engine.
struct Doing {
  enum class Act : std::uint8_t { starting, testing, waiting, dropping, progressing };
  Act act = Act::progressing;
  Collective collective = Collective::exchange;
  Origin origin = {};
};

std::string to_text(const Doing& doing);  // "a wait for all_reduce (train.cpp:40)"

class Guard {
 public:
  // Throws Error usage where another thread of the user is inside, or the same one (from its own reduction).
  void enter(Doing doing, std::string_view name) {
    Owner seen = Owner::nobody;
    if (!owner_.compare_exchange_strong(seen, Owner::user, std::memory_order_acquire, std::memory_order_relaxed))
        [[unlikely]]
      enter_late(Doing(doing), name);  // a copy, so that the usual way needs no memory for it
    act_.store(doing.act, std::memory_order_relaxed);
    collective_.store(doing.collective, std::memory_order_relaxed);
    file_.store(doing.origin.file, std::memory_order_relaxed);
    line_.store(doing.origin.line, std::memory_order_relaxed);
  }
  bool try_enter_as_progress();
  void leave() {
    progress_.store({}, std::memory_order_relaxed);
    owner_.store(Owner::nobody, std::memory_order_release);
  }

 private:
  enum class Owner : std::uint8_t { nobody, user, progress };
  void enter_late(const Doing& doing, std::string_view name);
  [[noreturn]] void refuse(const Doing& doing, const Doing& other, std::string_view name) const;

  std::atomic<Owner> owner_{Owner::nobody};
  std::atomic<std::thread::id> progress_{};  // who makes progress, so that it never waits for itself
  // What the owner does, as far as another thread may see; it may see a mixture of two calls.
  std::atomic<Doing::Act> act_{};
  std::atomic<Collective> collective_{};
  std::atomic<const char*> file_{""};
  std::atomic<int> line_{0};
};

// Inside as long as it lives.
class Inside {
 public:
  Inside(Guard& guard, Doing doing, std::string_view name) : guard_(guard) { guard.enter(doing, name); }
  ~Inside() { guard_.leave(); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Guard& guard_;
};

}  // namespace lockstep
