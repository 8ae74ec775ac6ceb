// SPDX-License-Identifier: Apache-2.0
// An operation that is under way. Moves, is waited for once, and keeps what it needs alive. One that is destroyed
// without having been waited for fails its communicator: the memory it works on may be gone.
#pragma once

#include <memory>
#include <span>

#include "collectives/communicator/team.hpp"

namespace lockstep {

class Request {
 public:
  Request() = default;
  Request(std::shared_ptr<detail::Team> team, detail::Handle handle) : team_(std::move(team)), handle_(handle) {}
  ~Request();
  Request(Request&& other) noexcept : team_(std::move(other.team_)), handle_(other.handle_) {}
  Request& operator=(Request&& other) noexcept;

  // Returns when the operation is done and its result is in place; throws what went wrong.
  void wait(Origin origin = Origin::here());
  // Whether it is done; moves it on without blocking. After true there is nothing left to wait for.
  bool test(Origin origin = Origin::here());
  // Neither started nor done yet.
  bool pending() const { return team_ != nullptr; }

 private:
  std::shared_ptr<detail::Team> team_;  // none: nothing under way
  detail::Handle handle_;
};

// For each of them; the first error is thrown after all have ended.
void wait_all(std::span<Request> requests, Origin origin = Origin::here());

// A call that is checked and planned once and started many times, on the same memory. Starting allocates nothing.
class Prepared {
 public:
  Prepared(std::shared_ptr<detail::Team> team, detail::Ready ready)
      : team_(std::move(team)), ready_(std::move(ready)) {}
  Request start(Origin origin = Origin::here()) { return {team_, team_->start(ready_, origin)}; }
  // In a stream it need not be waited for, where GPUs do it.
  void run(Origin origin = Origin::here()) { team_->run(ready_, origin); }
  // What was decided, for people.
  const std::string& why() const { return ready_.why(); }
  const std::string& algorithm() const { return ready_.algorithm(); }

 private:
  std::shared_ptr<detail::Team> team_;
  detail::Ready ready_;
};

}  // namespace lockstep
