// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/guard.hpp"

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

std::string to_text(const Doing& doing) {
  if (doing.act == Doing::Act::progressing) return "a call of progress";
  constexpr std::string_view names[] = {"the start of ", "a test of ", "a wait for ", "the end of "};
  std::string all = text(names[static_cast<std::size_t>(doing.act)], to_string(doing.collective));
  if (doing.origin.line > 0) all += text(" (", doing.origin.file, ':', doing.origin.line, ')');
  return all;
}

// Somebody was inside.
void Guard::enter_late(const Doing& doing, std::string_view name) {
  Owner seen = Owner::nobody;
  while (!owner_.compare_exchange_weak(seen, Owner::user, std::memory_order_acquire, std::memory_order_relaxed)) {
    if (seen == Owner::user) {
      const Doing other{act_.load(std::memory_order_relaxed),
                        collective_.load(std::memory_order_relaxed),
                        {file_.load(std::memory_order_relaxed), line_.load(std::memory_order_relaxed)}};
      refuse(doing, other, name);
    }
    if (seen == Owner::progress) {
      if (progress_.load(std::memory_order_relaxed) == std::this_thread::get_id()) refuse(doing, {}, name);
      std::this_thread::yield();
    }
    seen = Owner::nobody;
  }
}

void Guard::refuse(const Doing& doing, const Doing& other, std::string_view name) const {
  throw Error(Code::usage,
              text("the communicator \"", name, "\" is in ", to_text(other), ", and another thread (or the user's ",
                   "own reduction inside that call) makes ", to_text(doing)),
              "give every thread a communicator of its own (duplicate), or let one thread make the calls");
}

bool Guard::try_enter_as_progress() {
  Owner seen = Owner::nobody;
  if (!owner_.compare_exchange_strong(seen, Owner::progress, std::memory_order_acquire, std::memory_order_relaxed))
    return false;
  progress_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  return true;
}

}  // namespace lockstep
