// SPDX-License-Identifier: Apache-2.0
// Runs the replicas of this process: a thread for each but the first, which the caller runs. The threads stay between
// jobs. A job that throws in one replica is cancelled in the others, and ends with one error that names the replica.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

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
  using ReplicaFunction = std::function<void(int replica)>;
  // Is called in the replica's own thread when its job has thrown, so that it can release the others.
  using FailureHandler = std::function<void(int replica, const std::string& what)>;

  // Starts the threads. Each thread, and the caller while it works, stays on the processors in `cpus`. Empty lists
  // mean any processor.
  explicit ReplicaThreads(int size, std::vector<std::vector<int>> cpus = {});
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  // Holds an exception of one replica.
  struct ReplicaFailure {
    int replica = 0;
    std::exception_ptr cause;
  };
  // Runs the job in all replicas; the caller runs replica 0. Returns when all are through, with the exceptions in
  // order of time.
  std::vector<ReplicaFailure> run(const ReplicaFunction& job, const FailureHandler& failure_handler);

 private:
  void dismiss();
  void work(int replica);
  void run_replica(int replica) noexcept;

  const std::vector<int>& cpus_of(int replica) const;

  int size_;
  std::vector<std::vector<int>> cpus_;
  bool spins_;  // True if the machine has a hardware thread for each replica.
  std::mutex mutex_;
  std::vector<ReplicaFailure> thrown_;  // Is in order of time.
  const ReplicaFunction* job_ = nullptr;
  const FailureHandler* failure_handler_ = nullptr;
  std::atomic<std::uint32_t> jobs_{0};  // Counts the jobs so far.
  std::atomic<int> busy_{0};
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
