// SPDX-License-Identifier: Apache-2.0
// Provides the platform of an engine outside of tests: the machine's clock, a transport, and a way to wait.
#pragma once

#include <chrono>
#include <memory>

#include "collectives/engine/transport.hpp"
#include "collectives/engine/waiter.hpp"
#include "collectives/node/room.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

// Implements the Platform that Engine describes.
class RealPlatform {
 public:
  // Takes over the transport and the room. The room is the shared memory of the node's members; null means that they
  // exchange messages only.
  RealPlatform(std::unique_ptr<Transport> transport, Waiter waiter, std::unique_ptr<node::Room> room = nullptr)
      : transport_(std::move(transport)), waiter_(waiter), room_(std::move(room)) {}

  static constexpr bool runs_progress_hooks = true;

  // Returns the time of the monotonic clock.
  Duration now() const { return std::chrono::steady_clock::now().time_since_epoch(); }
  // Waits a little, longer with more turns. A sleep ends early if the room or the transport has news.
  void idle(unsigned turns, bool waits_in_node) {
    if (room_ && waits_in_node)
      waiter_.idle(turns, room_->sleeper());
    else
      waiter_.idle(turns, *transport_);
  }
  Transport& transport() { return *transport_; }
  node::Room* room() { return room_.get(); }
  const node::PollLimits& poll_limits() const { return waiter_.poll_limits(); }

 private:
  std::unique_ptr<Transport> transport_;
  Waiter waiter_;
  std::unique_ptr<node::Room> room_;
};

}  // namespace lockstep
