// SPDX-License-Identifier: Apache-2.0
// Finds the log of a thread's step, and puts values back.
#include "runtime/undo_log.hpp"

#include <atomic>
#include <exception>
#include <utility>

#include "topology/base/text.hpp"

namespace lockstep::detail {
namespace {

thread_local UndoLog* current_log = nullptr;
thread_local int current_replica = 0;

std::uint64_t next_step() {
  static std::atomic<std::uint64_t> steps = 0;
  return ++steps;
}

}  // namespace

UndoLog::UndoLog(int replicas) : step_(next_step()), restores_(static_cast<std::size_t>(replicas)) {}

UndoLog* UndoLog::of_this_thread() { return current_log; }

void UndoLog::add(std::function<void()> restore) {
  restores_[static_cast<std::size_t>(current_replica)].push_back(std::move(restore));
}

UndoLog::InThread::InThread(UndoLog* log, int replica)
    : log_before_(std::exchange(current_log, log)), replica_before_(std::exchange(current_replica, replica)) {}

UndoLog::InThread::~InThread() {
  current_log = log_before_;
  current_replica = replica_before_;
}

UndoLog::Transaction::~Transaction() {
  if (log_ == nullptr) return;
  for (const auto& of_replica : log_->restores_) {
    for (const auto& restore : of_replica) {
      try {
        restore();
      } catch (const std::exception& error) {
        errors_.error(text("a variable keeps the value of a failed step: ", error.what()));
      }
    }
  }
}

}  // namespace lockstep::detail
