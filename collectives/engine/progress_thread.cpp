// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/progress_thread.hpp"

#include <algorithm>

namespace lockstep {

ProgressThread::ProgressThread(std::function<ProgressState()> turn, Nap nap)
    : turn_(std::move(turn)), nap_(std::move(nap)), thread_([this] { run(); }) {}

ProgressThread::~ProgressThread() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ProgressThread::wake() {
  {
    const std::lock_guard lock(mutex_);
    if (woken_) return;
    woken_ = true;
  }
  changed_.notify_one();
}

// False: it is time to end.
bool ProgressThread::pause(std::chrono::microseconds longest) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, longest, [&] { return woken_ || ending_; });
  woken_ = false;
  return !ending_;
}

void ProgressThread::run() {
  using std::chrono::microseconds;
  constexpr microseconds shortest{20};
  constexpr microseconds longest{500};
  constexpr microseconds parked{50'000};       // not for ever: others may ask where this member stands
  constexpr microseconds awoken_within{2000};  // by what it waits for, mostly
  microseconds nap = shortest;
  while (true) {
    const ProgressState progress = turn_();
    if (progress == ProgressState::moved) nap = shortest;
    if (progress == ProgressState::waiting && nap_) {
      nap_(awoken_within);
      if (!pause(microseconds{0})) return;
      continue;
    }
    if (!pause(progress == ProgressState::nothing_to_do ? parked
               : progress == ProgressState::waiting     ? nap
                                                        : microseconds{0}))
      return;
    if (progress == ProgressState::waiting) nap = std::min(longest, 2 * nap);
  }
}

}  // namespace lockstep
