// SPDX-License-Identifier: Apache-2.0
// An operation that is under way. Moves, is waited for once, and keeps what it needs alive. One that is destroyed
// without having been waited for fails its communicator: the memory it works on may be gone.
#pragma once

#include <memory>
#include <span>

#include "collectives/communicator/communicator_core.hpp"

namespace lockstep {

class Request {
 public:
  Request() = default;
  Request(std::shared_ptr<detail::CommunicatorCore> core, detail::CallHandle handle)
      : core_(std::move(core)), handle_(handle) {}
  ~Request();
  Request(Request&& other) noexcept : core_(std::move(other.core_)), handle_(other.handle_) {}
  Request& operator=(Request&& other) noexcept;

  // Returns when the operation is done and its result is in place; throws what went wrong.
  void wait(Origin origin = Origin::here());
  // Whether it is done; moves it on without blocking. After true there is nothing left to wait for.
  bool test(Origin origin = Origin::here());
  // Neither started nor done yet.
  bool pending() const { return core_ != nullptr; }

 private:
  std::shared_ptr<detail::CommunicatorCore> core_;  // none: nothing under way
  detail::CallHandle handle_;
};

// For each of them; the first error is thrown after all have ended.
void wait_all(std::span<Request> requests, Origin origin = Origin::here());

// A call that is checked and planned once and started many times, on the same memory. Starting allocates nothing.
class PreparedCall {
 public:
  PreparedCall(std::shared_ptr<detail::CommunicatorCore> core, detail::BoundCall bound_call)
      : core_(std::move(core)), bound_call_(std::move(bound_call)) {}
  Request start(Origin origin = Origin::here()) { return {core_, core_->start(bound_call_, origin)}; }
  // In a stream it need not be waited for, where GPUs do it.
  void run(Origin origin = Origin::here()) { core_->run(bound_call_, origin); }
  // What was decided, for people.
  const std::string& why() const { return bound_call_.why(); }
  const std::string& algorithm() const { return bound_call_.algorithm(); }

 private:
  std::shared_ptr<detail::CommunicatorCore> core_;
  detail::BoundCall bound_call_;
};

}  // namespace lockstep
