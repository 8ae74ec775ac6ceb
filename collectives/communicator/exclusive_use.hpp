// SPDX-License-Identifier: Apache-2.0
// Admits one thread at a time to a communicator.
#pragma once

#include <pthread.h>

#include <chrono>
#include <thread>

#include "collectives/communicator/communicator_member.hpp"
#include "collectives/engine/engine.hpp"
#include "collectives/engine/real_platform.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {

// Defers pthread_cancel() until a call is over, because the other members count on it.
class CancellationDeferred {
 public:
  CancellationDeferred() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancellationDeferred() { ::pthread_setcancelstate(before_, nullptr); }
  CancellationDeferred(const CancellationDeferred&) = delete;
  CancellationDeferred& operator=(const CancellationDeferred&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// Gives one thread the communicator. Throws Error usage if another thread is inside.
class ExclusiveUse {
 public:
  ExclusiveUse(CommunicatorMember& member, const Origin& origin) : member_(member) {
    if (try_enter(origin)) return;
    throw Error(Code::usage,
                text("communicator \"", member.options().name,
                     "\" is used by two threads at once; the second call is at ", place(origin)),
                "give each thread a communicator of its own: duplicate() makes one");
  }
  // Waits for another thread, but at most about a second, since that may be this one. It serves destructors, which
  // must not throw.
  explicit ExclusiveUse(CommunicatorMember& member) : member_(member) {
    constexpr int most = 50'000;
    for (int i = 0; i < most && !try_enter(nowhere); ++i) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  ~ExclusiveUse() {
    if (!inside_) return;
    if (member_.engine_ && member_.engine_->failed()) [[unlikely]]
      member_.after_failure_();
    member_.user_.store(nullptr, std::memory_order_release);
  }
  bool inside() const { return inside_; }
  ExclusiveUse(const ExclusiveUse&) = delete;
  ExclusiveUse& operator=(const ExclusiveUse&) = delete;

 private:
  static constexpr Origin nowhere{};

  bool try_enter(const Origin& origin) {
    const Origin* nobody = nullptr;
    inside_ = member_.user_.compare_exchange_strong(nobody, &origin, std::memory_order_acquire);
    return inside_;
  }

  const CancellationDeferred deferred_;
  CommunicatorMember& member_;
  bool inside_ = false;
};

}  // namespace lockstep::detail
