// SPDX-License-Identifier: Apache-2.0
// Owns a private MPI communicator, and guards MPI against several threads.
#pragma once

#include <mpi.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <shared_mutex>

#include "topology/base/progress_hooks.hpp"
#include "topology/machine/mpi/tag_layout.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {

// Owns a private communicator, and decides which threads may call MPI on it. With MPI_THREAD_SERIALIZED one thread of
// the process may do so at a time, for all communicators. With MPI_THREAD_MULTIPLE all threads may. Below that, only
// the thread that started MPI may; others get Error thread_level.
class MpiCommunicator {
 public:
  // Takes the communicator. Throws Error mpi.
  MpiCommunicator(MPI_Comm owned, ThreadLevel level);
  // Frees the communicator, unless it was left to MPI or MPI has ended.
  ~MpiCommunicator();
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  MPI_Comm get() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  const TagLayout& tags() const { return tags_; }

  // Permits to send and receive data. A thread holds it during the calls of MPI.
  struct Access {
    std::unique_lock<std::mutex> alone;
    std::shared_lock<std::shared_mutex> together;
  };
  Access access();
  // Permits set-up messages, and guards their state. One thread holds it at a time.
  using Lock = std::unique_lock<std::mutex>;
  Lock enter();
  // Guards the same state, for callers that do not care if they may call MPI.
  Lock lock() { return Lock(mutex_); }
  // Keeps out the threads that have access(). The caller has entered.
  std::unique_lock<std::shared_mutex> keep_others_out();

  // Leaves the communicator to MPI: others may still send to us on it, or MPI may still use memory that it was given.
  void leave_to_mpi() { is_left_to_mpi_ = true; }
  bool is_left_to_mpi() const { return is_left_to_mpi_; }

 private:
  // Lets MPI make progress with the program's own messages, if this thread may call MPI.
  void progress();

  MPI_Comm comm_;
  ThreadLevel level_;
  int rank_ = 0;
  int size_ = 0;
  TagLayout tags_;
  std::mutex own_;
  std::mutex& mutex_;           // our own if MPI guards itself, else the process's
  std::shared_mutex together_;  // with MPI_THREAD_MULTIPLE: a thread that clears a channel is alone
  std::atomic<int> waiting_to_be_alone_ = 0;
  std::atomic<bool> is_left_to_mpi_ = false;
  std::optional<OutsideProgress> outside_;
};

}  // namespace lockstep
