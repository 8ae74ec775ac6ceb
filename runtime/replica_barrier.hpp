// SPDX-License-Identifier: Apache-2.0
// Where the replicas of a process come together in the middle of a job: all or none, at the same place of the program.
// One of them does something for all with what each has brought.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/node/call.hpp"
#include "topology/base/error.hpp"
#include "topology/exchange.hpp"

namespace lockstep {

class ReplicaBarrier {
 public:
  using Completion = std::function<void(const std::vector<void*>& brought)>;

  ReplicaBarrier(int size, Patience patience, Log log)
      : size_(size), patience_(patience), log_(std::move(log)), brought_(static_cast<std::size_t>(size)) {}

  // A job begins; nobody has met or left yet.
  void begin();
  // Replica 0 calls `completion` when all have come, and takes its time; the others wait until it has returned. An
  // Error mismatch on all where one came from another place, with something of another kind, or has left its job; stall
  // where one does not come; peer_failed where `completion` threw, which is thrown on in replica 0, and after cancel.
  void arrive_and_wait(int replica, Origin origin, const void* kind, void* mine, const Completion& completion);
  // The replica's job is through: it will not come any more.
  void leave(int replica);
  // A replica has failed: nobody waits for it.
  void cancel(const std::string& why);

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  void arrive(int replica, Origin origin, const void* kind, void* mine);
  void call(Lock& lock, const Completion& completion);
  void fail(Code code, const std::string& what, std::string_view mend);
  void check() const;
  std::string missing() const;
  void wait(Lock& lock, const std::function<bool()>& ready);
  void look_at_the_clock(Clock::time_point begin, bool& warned);

  const int size_;
  const Patience patience_;
  const Log log_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<void*> brought_;  // none: has not come
  int arrived_ = 0;
  int rounds_ = 0;  // that are over
  bool leading_ = false;
  int first_to_leave_ = -1;
  Origin origin_;
  const void* kind_ = nullptr;
  std::exception_ptr failure_;
};

}  // namespace lockstep
