// SPDX-License-Identifier: Apache-2.0
// Holds the state that all transports over sockets of a process share, and numbers the connections of two ranks.
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>

#include "collectives/tcp/acceptor.hpp"
#include "collectives/tcp/tcp_transport.hpp"

namespace lockstep {

// Holds the state that all transports of a process share.
struct Tcp::Shared {
  explicit Shared(const TcpOptions& options)
      : silence(std::chrono::duration_cast<std::chrono::milliseconds>(options.silence)),
        label(options.label),
        log(options.log),
        acceptor(options.address, options.listens_everywhere, options.key) {}
  std::chrono::milliseconds silence;
  std::string label;
  Log log;
  tcp::Acceptor acceptor;
  std::atomic<bool> has_lost = false;
};

namespace tcp {

// Numbers the connections between two ranks: one per lane, then one for control messages.
inline constexpr int lane_count = 4;
inline constexpr std::uint32_t control_channel = lane_count;
inline constexpr std::uint32_t channel_count = lane_count + 1;

// True if there is no route to the host at the moment.
inline bool has_no_route(int error) {
  return error == EHOSTUNREACH || error == ENETUNREACH || error == EHOSTDOWN || error == ENETDOWN;
}

}  // namespace tcp
}  // namespace lockstep
