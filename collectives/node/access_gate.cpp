// SPDX-License-Identifier: Apache-2.0
// Begins and ends accesses, and waits for them after a failure.
#include "collectives/node/access_gate.hpp"

#include <sched.h>
#include <unistd.h>

#include <chrono>

#include "topology/base/error.hpp"

namespace lockstep::node {

AccessGate::~AccessGate() {
  if (!is_on_gpu_) own_header().busy.store(0, std::memory_order_release);
}

// Both sides write before they look, so one of them sees the other.
bool AccessGate::begin_peer_access() {
  own_header().busy.store(1, std::memory_order_seq_cst);
  if (memory_.header().given_up.load(std::memory_order_seq_cst) == 0) return true;
  end_peer_access();
  return false;
}

void AccessGate::end_peer_access() noexcept {
  try {
    if (is_working()) return;
  } catch (const Error&) {
    is_on_gpu_ = false;  // nothing runs there any more
  }
  own_header().busy.store(0, std::memory_order_release);
}

bool AccessGate::abandon() {
  memory_.header().given_up.store(1, std::memory_order_seq_cst);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  gpus_.release_waits_for_dead();  // also if only this member's streams wait for its events
  for (end_peer_access(); is_on_gpu_ && std::chrono::steady_clock::now() < limit; end_peer_access()) {
    gpus_.release_waits_for_dead();  // repeated: a dead process is gone only when the GPU has released its work
    ::usleep(100);
  }
  if (!is_on_gpu_) own_header().busy.store(0, std::memory_order_release);
  for (int member = 0; member < memory_.size(); ++member) {
    while (memory_.header_of(member).busy.load(std::memory_order_seq_cst) != 0 && !reader_.is_gone(member)) {
      if (std::chrono::steady_clock::now() > limit) return false;
      ::sched_yield();
    }
  }
  return true;
}

}  // namespace lockstep::node
