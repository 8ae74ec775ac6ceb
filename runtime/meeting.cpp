// SPDX-License-Identifier: Apache-2.0
#include "runtime/meeting.hpp"

#include <algorithm>

#include "topology/base/error.hpp"
#include "topology/base/index_set.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

constexpr std::string_view all_or_none = "merge_call is made by all replicas or by none, in the same order";

}  // namespace

void Meeting::begin() {
  const std::lock_guard lock(mutex_);
  std::ranges::fill(brought_, nullptr);
  arrived_ = 0;
  first_to_leave_ = -1;
  failure_ = nullptr;
}

void Meeting::fail(Code code, const std::string& what, const std::string& mend) {
  if (!failure_) failure_ = std::make_exception_ptr(Error(code, what, mend));
  changed_.notify_all();
}

void Meeting::check() const {
  if (failure_) std::rethrow_exception(failure_);
}

std::string Meeting::missing() const {
  IndexSet absent;
  for (int replica = 0; replica < size_; ++replica) {
    if (brought_[static_cast<std::size_t>(replica)] == nullptr) absent.insert(replica);
  }
  return text("local replica ", absent.to_string(), " of ", size_);
}

template <class Ready>
void Meeting::wait(std::unique_lock<std::mutex>& lock, const Ready& ready) {
  const auto come = [&] { return failure_ != nullptr || ready(); };
  if (patience_.limit == Duration{})
    changed_.wait(lock, come);
  else if (!changed_.wait_for(lock, patience_.limit, come))
    fail(Code::stall, text("waited ", format_duration(patience_.limit), " in merge_call for ", missing()),
         "look what it does; LOCKSTEP_TIMEOUT sets the limit");
  check();
}

void Meeting::meet(int replica, Origin origin, void* mine, const Lead& lead) {
  std::unique_lock lock(mutex_);
  check();
  if (first_to_leave_ >= 0)
    fail(Code::mismatch,
         text("local replica ", first_to_leave_, " has returned while replica ", replica, " is in merge_call at ",
              place(origin)),
         std::string(all_or_none));
  else if (arrived_ == 0)
    origin_ = origin;
  else if (place(origin_) != place(origin))
    fail(Code::mismatch,
         text("replicas are in merge_call at ", place(origin_), " and, replica ", replica, ", at ", place(origin)),
         std::string(all_or_none));
  check();
  brought_[static_cast<std::size_t>(replica)] = mine;
  ++arrived_;
  const int now = meetings_;
  if (replica != 0) {
    if (arrived_ == size_) changed_.notify_all();
    wait(lock, [&] { return meetings_ != now; });
    return;
  }
  wait(lock, [&] { return arrived_ == size_; });
  lock.unlock();
  lead(brought_);  // what it throws ends replica 0's job, which cancels the others
  lock.lock();
  check();
  std::ranges::fill(brought_, nullptr);
  arrived_ = 0;
  ++meetings_;
  changed_.notify_all();
}

void Meeting::leave(int replica) {
  const std::lock_guard lock(mutex_);
  if (first_to_leave_ < 0) first_to_leave_ = replica;
  if (arrived_ > 0)
    fail(Code::mismatch,
         text("local replica ", replica, " has returned while ",
              size_ - static_cast<int>(std::ranges::count(brought_, nullptr)), " of ", size_, " wait in merge_call at ",
              place(origin_)),
         std::string(all_or_none));
}

void Meeting::cancel(const std::string& why) {
  const std::lock_guard lock(mutex_);
  fail(Code::peer_failed, why, "look at what that replica threw");
}

}  // namespace lockstep
