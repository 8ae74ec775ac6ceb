// SPDX-License-Identifier: Apache-2.0
// Advances handshakes whose callers have sent something, and drops those that take too long.
#include "collectives/tcp/unverified_connections.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace lockstep::tcp {
namespace {

constexpr std::chrono::seconds proof_takes{10};

// Allows a quarter of all descriptors. A member that computes may take seconds to prove the key, and many may call at
// once. So the limit is raised before a caller is refused.
constexpr std::size_t max_unverified_ever = 16'384;
std::size_t max_unverified() {
  constexpr std::size_t least = 16;
  return std::clamp(descriptor_limit() / 4, least, max_unverified_ever);
}

}  // namespace

std::optional<Handshake> UnverifiedConnections::add(Descriptor socket) {
  const int number = socket.get();
  watch(epoll_, number, EPOLLIN);
  connections_.push_back({Handshake::called(std::move(socket), key_), std::chrono::steady_clock::now()});
  by_socket_[number] = std::prev(connections_.end());
  auto introduced = advance(number);  // a quick caller answers the challenge meanwhile
  if (connections_.size() > max_unverified() && (connections_.size() > max_unverified_ever || !raise_limit()))
    drop_oldest();
  return introduced;
}

std::optional<Handshake> UnverifiedConnections::advance(int socket) {
  const auto found = by_socket_.find(socket);
  if (found == by_socket_.end()) return std::nullopt;
  const auto connection = found->second;
  const auto state = connection->handshake.advance();
  if (state == HandshakeState::under_way) return std::nullopt;
  by_socket_.erase(found);
  std::optional<Handshake> introduced;
  if (state == HandshakeState::introduced) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
    introduced = std::move(connection->handshake);
  }
  connections_.erase(connection);
  return introduced;
}

bool UnverifiedConnections::drop_oldest() {
  if (connections_.empty()) return false;
  by_socket_.erase(connections_.front().handshake.socket().get());
  connections_.pop_front();
  return true;
}

void UnverifiedConnections::drop_late() {
  if (connections_.empty()) return;
  const auto now = std::chrono::steady_clock::now();
  while (!connections_.empty() && now - connections_.front().since > proof_takes) drop_oldest();
}

}  // namespace lockstep::tcp
