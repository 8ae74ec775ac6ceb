// SPDX-License-Identifier: Apache-2.0
// Defers pthread_cancel() until a call is over, because the other members count on it.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace lockstep {

// Tells when a deferral begins: at once, or not before its holder asks for it.
enum class DefersCancellation : std::uint8_t { at_once, later };

// Defers from begin() to its own end. The system ends a thread only in certain functions of its own, such as a sleep or
// a write. So a call that only looks at memory need not begin.
class CancellationDeferral {
 public:
  explicit CancellationDeferral(DefersCancellation defers = DefersCancellation::at_once) {
    if (defers == DefersCancellation::at_once) begin();
  }
  ~CancellationDeferral() {
    if (has_begun_) ::pthread_setcancelstate(before_, nullptr);
  }
  CancellationDeferral(const CancellationDeferral&) = delete;
  CancellationDeferral& operator=(const CancellationDeferral&) = delete;

  void begin() {
    if (!has_begun_) ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
    has_begun_ = true;
  }

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
  bool has_begun_ = false;
};

}  // namespace lockstep
