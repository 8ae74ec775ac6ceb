// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/request.hpp"

#include <exception>
#include <utility>

namespace lockstep {

Request::~Request() {
  if (team_) team_->drop(handle_);
}

Request& Request::operator=(Request&& other) noexcept {
  if (this == &other) return *this;
  if (team_) team_->drop(handle_);
  team_ = std::move(other.team_);
  handle_ = other.handle_;
  return *this;
}

void Request::wait(Origin origin) {
  if (!team_) return;
  const auto team = std::exchange(team_, nullptr);  // whatever happens, there is nothing left to wait for
  team->wait(handle_, origin);
}

bool Request::test(Origin origin) {
  if (!team_) return true;
  try {
    if (!team_->test(handle_, origin)) return false;
  } catch (...) {
    team_ = nullptr;
    throw;
  }
  team_ = nullptr;
  return true;
}

void wait_all(std::span<Request> requests, Origin origin) {
  std::exception_ptr first;
  for (Request& request : requests) {
    try {
      request.wait(origin);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace lockstep
