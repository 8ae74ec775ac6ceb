// SPDX-License-Identifier: Apache-2.0
// The world that an engine lives in when it is not a test: the machine's clock, a transport, a way to wait.
#pragma once

#include <chrono>
#include <memory>

#include "collectives/engine/transport.hpp"
#include "collectives/engine/waiter.hpp"
#include "collectives/node/room.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

class RealWorld {
 public:
  // The room is where members of one node meet; none: they do not.
  RealWorld(std::unique_ptr<Transport> transport, Waiter waiter, std::unique_ptr<node::Room> room = nullptr)
      : transport_(std::move(transport)), waiter_(waiter), room_(std::move(room)) {}

  static constexpr bool runs_progress_hooks = true;

  Duration now() const { return std::chrono::steady_clock::now().time_since_epoch(); }
  // Who sleeps is woken by what it sleeps at.
  void idle(unsigned turns, bool meets) {
    if (room_ && meets)
      waiter_.idle(turns, *room_);
    else
      waiter_.idle(turns, *transport_);
  }
  Transport& transport() { return *transport_; }
  node::Room* room() { return room_.get(); }
  const node::PollLimits& looks() const { return waiter_.looks(); }

 private:
  std::unique_ptr<Transport> transport_;
  Waiter waiter_;
  std::unique_ptr<node::Room> room_;
};

}  // namespace lockstep
