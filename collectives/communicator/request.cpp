// SPDX-License-Identifier: Apache-2.0
// Waits for operations under way, and fails the communicator of a request that is dropped.
#include "collectives/communicator/request.hpp"

#include <exception>
#include <utility>

#include "collectives/communicator/communicator_core.hpp"

namespace lockstep {

Request::~Request() {
  if (core_) core_->pending_calls().drop(handle_);
}

Request& Request::operator=(Request&& other) noexcept {
  if (this == &other) return *this;
  if (core_) core_->pending_calls().drop(handle_);
  core_ = std::move(other.core_);
  handle_ = other.handle_;
  return *this;
}

void Request::wait(Origin origin) {
  if (!core_) return;
  bool over = false;
  try {
    core_->pending_calls().wait(handle_, origin, over);
  } catch (...) {
    if (over) core_ = nullptr;  // Otherwise another thread was inside, and the operation is still under way.
    throw;
  }
  core_ = nullptr;
}

bool Request::test(Origin origin) {
  if (!core_) return true;
  bool over = false;
  try {
    if (!core_->pending_calls().test(handle_, origin, over)) return false;
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

PreparedCall::PreparedCall(std::shared_ptr<detail::CommunicatorCore> core, detail::BoundCall bound_call)
    : core_(std::move(core)), bound_call_(std::make_shared<const detail::BoundCall>(std::move(bound_call))) {}

Request PreparedCall::start(Origin origin) { return {core_, core_->start(*bound_call_, origin)}; }

void PreparedCall::run(Origin origin) { core_->run(*bound_call_, origin); }

const std::string& PreparedCall::why() const { return bound_call_->why(); }
const std::string& PreparedCall::algorithm() const { return bound_call_->algorithm(); }

}  // namespace lockstep
