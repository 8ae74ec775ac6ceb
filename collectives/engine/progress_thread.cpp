// SPDX-License-Identifier: Apache-2.0
// Implements the progress thread: it spins while something moves, and naps ever longer while calls wait.
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

// Waits for wake() or for that time. Returns false if the thread must end.
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
  // Even an idle thread looks now and then, since other members may ask for this one's state. All times are guesses.
  constexpr microseconds parked{50'000};
  // A message mostly ends this nap earlier.
  constexpr microseconds awoken_within{2000};
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
