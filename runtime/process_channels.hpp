// SPDX-License-Identifier: Apache-2.0
// Owns a strategy's communicators of processes, one for each purpose, so that no purpose waits for another.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>

#include "collectives/communicator/communicator.hpp"
#include "runtime/communication.hpp"

namespace lockstep::detail {

// Belongs to one strategy. Any thread may ask for a channel; one thread at a time uses it.
class ProcessChannels {
 public:
  using MakeChannel = std::function<Communicator(Channel channel)>;

  // Makes all channels in their order; all processes call it.
  void begin(const MakeChannel& make);
  // Makes each channel when it is first asked for, and again after a failure. It must need no other process.
  void begin_alone(MakeChannel make) { make_ = std::move(make); }
  // Makes a channel again after a failure, at the same address; all processes call it.
  void replace(Channel channel, Communicator made);

  Communicator& at(Channel channel);

 private:
  MakeChannel make_;
  std::mutex mutex_;  // Guards the making of channels on first use.
  std::array<std::unique_ptr<Communicator>, 4> channels_;
};

}  // namespace lockstep::detail
