// SPDX-License-Identifier: Apache-2.0
// The replicas of this process at work: a thread for each but the first, whose work the caller does. They stay between
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

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

namespace detail {
// The words of an exception, of whatever type.
std::string what_of(const std::exception_ptr& cause);
// Ends the process with an Error usage. A thread that pthread_exit or pthread_cancel ends while it runs a function for
// Lockstep cannot be kept, and others would wait for it.
[[noreturn]] void end_with_its_thread(const std::string& where) noexcept;
}  // namespace detail

// What a replica's function threw: its words, with the replica's name.
class ReplicaError : public Error {
 public:
  ReplicaError(int replica, int of, std::exception_ptr cause, bool can_go_on);
  int replica() const { return replica_; }                    // in the sync group
  const std::exception_ptr& cause() const { return cause_; }  // the exception itself

 private:
  int replica_;
  std::exception_ptr cause_;
};

class ReplicaThreads {
 public:
  using ReplicaFunction = std::function<void(int replica)>;
  // Told, in its own thread, that a replica's job has thrown, so that the others can be set free.
  using FailureHandler = std::function<void(int replica, const std::string& what)>;

  // `cpus` of each replica: its thread stays there, as does the caller while it works. None: wherever the system likes.
  explicit ReplicaThreads(int size, std::vector<std::vector<int>> cpus = {});
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  struct ReplicaFailure {
    int replica = 0;
    std::exception_ptr cause;
  };
  // Everybody's job; 0 is done by this thread. Returns when all are through, with what was thrown, by time.
  std::vector<ReplicaFailure> run(const ReplicaFunction& job, const FailureHandler& failure_handler);

 private:
  void dismiss();
  void work(int replica);
  void do_one(int replica) noexcept;

  const std::vector<int>& cpus_of(int replica) const;

  int size_;
  std::vector<std::vector<int>> cpus_;
  bool spins_;  // there is a core for each
  std::mutex mutex_;
  std::vector<ReplicaFailure> thrown_;  // by time
  const ReplicaFunction* job_ = nullptr;
  const FailureHandler* failure_handler_ = nullptr;
  std::atomic<std::uint32_t> jobs_{0};  // how many there have been
  std::atomic<int> busy_{0};
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
