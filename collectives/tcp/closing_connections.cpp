// SPDX-License-Identifier: Apache-2.0
// Sends the rest of closing connections, and discards the data that they receive.
#include "collectives/tcp/closing_connections.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace lockstep::tcp {
namespace {

constexpr std::chrono::seconds closing_takes{5};

}  // namespace

void ClosingConnections::add(Descriptor socket, Bytes rest) {
  ClosingConnection connection{std::move(socket), std::move(rest), 0, Clock::now()};
  if (!is_over(connection)) connections_.push_back(std::move(connection));
}

void ClosingConnections::add(Handshake handshake, Bytes rest) {
  handshakes_.push_back({std::move(handshake), std::move(rest), Clock::now()});
}

bool ClosingConnections::is_over(ClosingConnection& connection) {
  while (connection.sent < connection.rest.size()) {
    iovec part{connection.rest.data() + connection.sent, connection.rest.size() - connection.sent};
    const IoResult moved = write(connection.socket, {&part, 1});
    if (moved.is_over) return true;
    if (moved.bytes == 0) break;
    connection.sent += moved.bytes;
  }
  if (connection.sent == connection.rest.size()) ::shutdown(connection.socket.get(), SHUT_WR);
  std::array<std::byte, 4096> discarded;
  for (;;) {
    const IoResult moved = read(connection.socket, discarded);
    if (moved.is_over) return true;
    if (moved.bytes == 0) return false;
  }
}

void ClosingConnections::advance_handshakes(Clock::time_point now) {
  for (auto each = handshakes_.begin(); each != handshakes_.end();) {
    const auto state = each->handshake.advance();
    if (state == HandshakeState::taken) add(each->handshake.take(), std::move(each->rest));
    const bool goes_on = state == HandshakeState::under_way && now - each->since < closing_takes;
    each = goes_on ? std::next(each) : handshakes_.erase(each);
  }
}

void ClosingConnections::progress() {
  if (handshakes_.empty() && connections_.empty()) return;
  const auto now = Clock::now();
  advance_handshakes(now);
  connections_.remove_if([now](ClosingConnection& each) { return is_over(each) || now - each.since > closing_takes; });
}

bool ClosingConnections::is_sending() const {
  return !handshakes_.empty() ||
         std::ranges::any_of(connections_, [](const ClosingConnection& each) { return each.sent < each.rest.size(); });
}

}  // namespace lockstep::tcp
