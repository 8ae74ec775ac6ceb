// SPDX-License-Identifier: Apache-2.0
// Runs the seats of this process's replicas: a thread for each but the first, at which the caller runs. The threads
// stay between jobs. A job that throws in one replica is cancelled in the others, and ends with one error that names
// the replica.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/data/processors.hpp"

namespace lockstep {

namespace detail {
// Returns the text of an exception of any type.
std::string message_of(const std::exception_ptr& cause);
// True if the exception only reports another replica's failure.
bool is_consequence(const std::exception_ptr& cause);
// Ends the process with an Error usage. A thread that pthread_exit or pthread_cancel ends inside a function of
// Lockstep's cannot be kept, and others would wait for it.
[[noreturn]] void terminate_with_thread(const std::string& where) noexcept;
}  // namespace detail

// Owns the threads. Only one thread at a time may call run().
class ReplicaThreads {
 public:
  using SeatFunction = std::function<void(int seat)>;
  // Is called in the seat's own thread when its job has thrown, so that it can release the others.
  using FailureHandler = std::function<void(int seat, const std::string& what)>;

  // Starts the threads. Each thread, and the caller while it works, stays on the processors in `cpus`. Empty lists
  // mean any processor. Threads that prepare data leave these processors to them.
  explicit ReplicaThreads(int size, std::vector<std::vector<int>> cpus = {});
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  // Holds an exception of the job at one seat.
  struct SeatFailure {
    int seat = 0;
    std::exception_ptr cause;
  };
  // Runs the job at all seats; the caller runs that of seat 0. Returns when all are through, with the exceptions in
  // order of time.
  std::vector<SeatFailure> run(const SeatFunction& job, const FailureHandler& failure_handler);

 private:
  void dismiss();
  void work(int seat);
  void run_seat(int seat) noexcept;

  const std::vector<int>& cpus_of(int seat) const;

  int size_;
  data::ReplicaProcessors processors_;
  bool spins_;  // True if the machine has a hardware thread for each seat.
  std::mutex mutex_;
  std::vector<SeatFailure> thrown_;  // Is in order of time.
  const SeatFunction* job_ = nullptr;
  const FailureHandler* failure_handler_ = nullptr;
  std::atomic<std::uint32_t> jobs_{0};  // Counts the jobs so far.
  std::atomic<int> busy_{0};
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
