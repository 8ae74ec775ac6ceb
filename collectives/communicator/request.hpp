// SPDX-License-Identifier: Apache-2.0
// Declares Request, an operation under way, and PreparedCall, a call that is planned once and started many times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "collectives/origin.hpp"

namespace lockstep {

namespace detail {

class CommunicatorCore;
struct BoundCall;

// Names a call that is under way. The generation tells it from earlier calls in the same slot.
struct CallHandle {
  std::size_t slot = 0;
  std::uint32_t generation = 0;
};

}  // namespace detail

// Holds an operation that is under way, and keeps the communicator's core alive. A program waits for it once. If it is
// destroyed or overwritten before that, its communicator fails, because the buffers may be gone.
class Request {
 public:
  // Makes a request with nothing under way: wait() returns at once, and test() is true.
  Request() = default;
  Request(std::shared_ptr<detail::CommunicatorCore> core, detail::CallHandle handle)
      : core_(std::move(core)), handle_(handle) {}
  ~Request();
  Request(Request&& other) noexcept : core_(std::move(other.core_)), handle_(other.handle_) {}
  Request& operator=(Request&& other) noexcept;

  // Returns when the operation is done and its result is in place. Throws the operation's Error if it fails.
  void wait(Origin origin = Origin::here());
  // Advances the operation without blocking. Returns true if it is done; then nothing is left to wait for. Throws like
  // wait().
  bool test(Origin origin = Origin::here());
  // True until the operation has ended in wait() or test(), with its result or with an error.
  bool pending() const { return core_ != nullptr; }

 private:
  std::shared_ptr<detail::CommunicatorCore> core_;  // Null if nothing is under way.
  detail::CallHandle handle_;
};

// Waits for all requests, then throws the first error if there was one.
void wait_all(std::span<Request> requests, Origin origin = Origin::here());

// Holds a call that is checked and planned once, and started many times on the same memory. The caller owns that
// memory. After the first start, starting allocates nothing. It keeps the communicator's core alive.
class PreparedCall {
 public:
  PreparedCall(std::shared_ptr<detail::CommunicatorCore> core, detail::BoundCall bound_call);
  // Starts the call and returns at once. All ranks start it.
  Request start(Origin origin = Origin::here());
  // Runs the call to its end. In a stream, if GPUs do the work, it returns when the call is queued.
  void run(Origin origin = Origin::here());
  // Return the planner's reason for its choice, as text for people, and the algorithm's name.
  const std::string& why() const;
  const std::string& algorithm() const;

 private:
  std::shared_ptr<detail::CommunicatorCore> core_;
  std::shared_ptr<const detail::BoundCall> bound_call_;
};

}  // namespace lockstep
