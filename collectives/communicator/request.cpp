// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/request.hpp"

#include <exception>

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
  bool over = false;
  try {
    team_->wait(handle_, origin, over);
  } catch (...) {
    if (over) team_ = nullptr;  // else it was refused because of another thread, and is still under way
    throw;
  }
  team_ = nullptr;
}

bool Request::test(Origin origin) {
  if (!team_) return true;
  bool over = false;
  try {
    if (!team_->test(handle_, origin, over)) return false;
  } catch (...) {
    if (over) team_ = nullptr;
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
