// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/request.hpp"

#include <exception>

namespace lockstep {

Request::~Request() {
  if (core_) core_->drop(handle_);
}

Request& Request::operator=(Request&& other) noexcept {
  if (this == &other) return *this;
  if (core_) core_->drop(handle_);
  core_ = std::move(other.core_);
  handle_ = other.handle_;
  return *this;
}

void Request::wait(Origin origin) {
  if (!core_) return;
  bool over = false;
  try {
    core_->wait(handle_, origin, over);
  } catch (...) {
    if (over) core_ = nullptr;  // else it was refused because of another thread, and is still under way
    throw;
  }
  core_ = nullptr;
}

bool Request::test(Origin origin) {
  if (!core_) return true;
  bool over = false;
  try {
    if (!core_->test(handle_, origin, over)) return false;
  } catch (...) {
    if (over) core_ = nullptr;
    throw;
  }
  core_ = nullptr;
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
