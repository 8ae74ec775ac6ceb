// SPDX-License-Identifier: Apache-2.0
// Implements the barrier of a process's replicas.
#include "runtime/replica_barrier.hpp"

#include <cxxabi.h>

#include <algorithm>

#include "runtime/replica_threads.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/index_set.hpp"
#include "topology/base/progress_hooks.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

constexpr std::string_view all_or_none = "merge_call is made by all replicas or by none, in the same order";

}  // namespace

void ReplicaBarrier::begin() {
  const std::lock_guard lock(mutex_);
  std::ranges::fill(contributions_, nullptr);
  arrived_ = 0;
  leading_ = false;
  first_to_leave_ = -1;
  failure_ = nullptr;
}

// Keeps the first failure, and wakes the waiting replicas. The caller holds the mutex.
void ReplicaBarrier::fail(Code code, const std::string& what, std::string_view remedy) {
  if (!failure_) failure_ = std::make_exception_ptr(Error(code, what, remedy));
  changed_.notify_all();
}

void ReplicaBarrier::check() const {
  if (failure_) std::rethrow_exception(failure_);
}

// Returns the call and the replicas that have not come to it.
std::string ReplicaBarrier::missing() const {
  IndexSet absent;
  for (int replica = 0; replica < size_; ++replica) {
    if (contributions_[static_cast<std::size_t>(replica)] == nullptr) absent.insert(replica);
  }
  return text("merge_call at ", place(origin_), " for local replica ", absent.to_string(), " of ", size_);
}

// Warns and fails at the wait limits for missing replicas. The completion of replica 0 has no limit, because it uses
// the other replicas' memory.
void ReplicaBarrier::check_deadline(Clock::time_point begin, bool& warned) {
  if (leading_) return;
  const auto waited = Clock::now() - begin;
  if (wait_limits_.warn > Duration{} && waited >= wait_limits_.warn && !warned) {
    warned = true;
    log_.warn(text(id(Code::stall), " waiting for ", format_duration(wait_limits_.warn), " in ", missing()));
  }
  if (wait_limits_.limit > Duration{} && waited >= wait_limits_.limit)
    fail(Code::stall, text("waited ", format_duration(wait_limits_.limit), " in ", missing()),
         "check that replica; LOCKSTEP_TIMEOUT sets the limit");
}

// Waits until ready() or a failure. After the completion has begun, only its end counts.
void ReplicaBarrier::wait(Lock& lock, const std::function<bool()>& ready) {
  const auto come = [&] { return (failure_ != nullptr && !leading_) || ready(); };
  const auto begin = Clock::now();
  bool warned = false;
  while (!come()) {
    const bool moves = has_busy_hooks();  // The operations of this thread go on.
    const auto slice = moves ? std::chrono::microseconds(200) : std::chrono::microseconds(100'000);
    if (changed_.wait_for(lock, slice, come)) break;
    if (moves) {
      lock.unlock();
      run_progress_hooks(0);
      lock.lock();
    }
    if (!come()) check_deadline(begin, warned);
  }
  check();
}

// Adds a replica's value. The first one sets the line and the type, which the others must match.
void ReplicaBarrier::arrive(int replica, Origin origin, const void* kind, void* mine, bool compares_lines) {
  check();
  if (first_to_leave_ >= 0) {
    fail(Code::mismatch,
         text("local replica ", first_to_leave_, " has returned while replica ", replica, " is in merge_call at ",
              place(origin)),
         all_or_none);
  } else if (arrived_ == 0) {
    origin_ = origin;
    kind_ = kind;
  } else if (compares_lines && place(origin_) != place(origin)) {
    fail(Code::mismatch,
         text("replicas are in merge_call at ", place(origin_), " and, replica ", replica, ", at ", place(origin)),
         all_or_none);
  } else if (kind_ != kind) {
    fail(Code::mismatch, text("in merge_call at ", place(origin), " replica ", replica, " has values of other types"),
         "let all replicas bring values of the same types, and the same function");
  }
  check();
  contributions_[static_cast<std::size_t>(replica)] = mine;
  ++arrived_;
  if (arrived_ == size_) {
    leading_ = true;
    changed_.notify_all();
  }
}

// Replica 0 runs the completion for all; the others wait for its end.
void ReplicaBarrier::arrive_and_wait(int replica, Origin origin, const void* kind, void* mine,
                                     const Completion& completion, bool compares_lines) {
  Lock lock(mutex_);
  arrive(replica, origin, kind, mine, compares_lines);
  const int now = rounds_;
  if (replica != 0) {
    wait(lock, [&] { return rounds_ != now; });
    return;
  }
  wait(lock, [&] { return arrived_ == size_; });
  call(lock, completion);
}

// Runs the completion without the mutex, because it may call anything, and then opens the barrier.
void ReplicaBarrier::call(Lock& lock, const Completion& completion) {
  std::exception_ptr thrown;
  lock.unlock();
  try {
    completion(contributions_);
  } catch (const abi::__forced_unwind&) {
    detail::terminate_with_thread(text("the function of merge_call at ", place(origin_)));
  } catch (...) {
    thrown = std::current_exception();
  }
  lock.lock();
  std::ranges::fill(contributions_, nullptr);
  arrived_ = 0;
  leading_ = false;
  ++rounds_;
  changed_.notify_all();
  if (!thrown) return check();
  fail(
      Code::peer_failed,
      text("the function of merge_call at ", place(origin_), ", for all replicas, threw: ", detail::message_of(thrown)),
      "correct that function");
  std::rethrow_exception(thrown);
}

// Records that a replica's function has returned. Replicas that wait then would wait for ever.
void ReplicaBarrier::leave(int replica) {
  const std::lock_guard lock(mutex_);
  if (first_to_leave_ < 0) first_to_leave_ = replica;
  if (arrived_ > 0)
    fail(Code::mismatch,
         text("local replica ", replica, " has returned while ", arrived_, " of ", size_, " wait in merge_call at ",
              place(origin_)),
         all_or_none);
}

void ReplicaBarrier::cancel(const std::string& why) {
  const std::lock_guard lock(mutex_);
  fail(Code::peer_failed, why, "see the exception of that replica");
}

}  // namespace lockstep
