// SPDX-License-Identifier: Apache-2.0
// The world that an engine lives in when it is not a test: the machine's clock, a transport, a way to wait.
#pragma once

#include <chrono>
#include <memory>

#include "collectives/engine/transport.hpp"
#include "collectives/engine/waiter.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

class RealWorld {
 public:
  RealWorld(std::unique_ptr<Transport> transport, Waiter waiter) : transport_(std::move(transport)), waiter_(waiter) {}

  static constexpr bool moves_others = true;

  Duration now() const { return std::chrono::steady_clock::now().time_since_epoch(); }
  void idle(unsigned turns) { waiter_.idle(turns, *transport_); }
  Transport& transport() { return *transport_; }

 private:
  std::unique_ptr<Transport> transport_;
  Waiter waiter_;
};

}  // namespace lockstep
