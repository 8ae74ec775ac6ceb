// SPDX-License-Identifier: Apache-2.0
// Admits one thread at a time to a communicator.
#pragma once

#include <chrono>
#include <thread>

#include "collectives/communicator/communicator_member.hpp"
#include "collectives/engine/engine.hpp"
#include "collectives/engine/real_platform.hpp"
#include "topology/base/cancellation_deferral.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {

// Gives one thread the communicator. Throws Error usage if another thread is inside.
class ExclusiveUse {
 public:
  ExclusiveUse(CommunicatorMember& member, const Origin& origin,
               DefersCancellation defers = DefersCancellation::at_once)
      : cancellation_(defers), member_(member) {
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
    if (member_.engine_ && member_.engine_->failed()) [[unlikely]] {
      cancellation_.begin();
      member_.after_failure_();
    }
    member_.user_.store(nullptr, std::memory_order_release);
  }
  bool inside() const { return inside_; }
  CancellationDeferral& cancellation() { return cancellation_; }
  ExclusiveUse(const ExclusiveUse&) = delete;
  ExclusiveUse& operator=(const ExclusiveUse&) = delete;

 private:
  static constexpr Origin nowhere{};

  bool try_enter(const Origin& origin) {
    const Origin* nobody = nullptr;
    inside_ = member_.user_.compare_exchange_strong(nobody, &origin, std::memory_order_acquire);
    return inside_;
  }

  CancellationDeferral cancellation_;
  CommunicatorMember& member_;
  bool inside_ = false;
};

}  // namespace lockstep::detail
