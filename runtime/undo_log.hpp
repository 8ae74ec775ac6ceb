// SPDX-License-Identifier: Apache-2.0
// Keeps the former values of the variables that a step changes, and puts them back if the step fails.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "topology/base/log.hpp"

namespace lockstep::detail {

// Belongs to one step of a strategy. Each replica's thread adds to a list of its own.
class UndoLog {
 public:
  explicit UndoLog(int replicas);
  UndoLog(const UndoLog&) = delete;
  UndoLog& operator=(const UndoLog&) = delete;

  // Returns the log of the step that this thread works for; null outside of steps.
  static UndoLog* of_this_thread();
  // Returns a number that no other step of this process has.
  std::uint64_t step() const { return step_; }
  // Adds a function that puts one former value back.
  void add(std::function<void()> restore);

  // Makes the log that of this thread while it lives. Null stands for no log.
  class InThread {
   public:
    InThread(UndoLog* log, int replica);
    ~InThread();
    InThread(const InThread&) = delete;
    InThread& operator=(const InThread&) = delete;

   private:
    UndoLog* log_before_;
    int replica_before_;
  };

  // Puts all former values back when it ends, unless the step has succeeded. Writes an error for a value that a GPU
  // no longer takes. Null stands for no log.
  class Transaction {
   public:
    Transaction(UndoLog* log, const Log& errors) : log_(log), errors_(errors) {}
    ~Transaction();
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;
    void commit() { log_ = nullptr; }

   private:
    UndoLog* log_;
    const Log& errors_;
  };

 private:
  const std::uint64_t step_;
  std::vector<std::vector<std::function<void()>>> restores_;  // Is indexed by local replica.
};

}  // namespace lockstep::detail
