// SPDX-License-Identifier: Apache-2.0
// Starts connections, answers those of other members, and decides which of two counts.
#include "collectives/tcp/peer_connections.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "topology/base/text.hpp"

namespace lockstep::tcp {

// Opens this member at the process's port, so that others can connect from now on.
PeerConnections::PeerConnections(Tcp::Shared& shared, const TcpMembers& members, PeerFailures& failures,
                                 EventPoll& poll)
    : silence_(shared.silence),
      acceptor_(shared.acceptor),
      members_(members),
      failures_(failures),
      poll_(poll),
      retries_(members, shared.silence) {
  poll_.set_key(acceptor_.descriptor().get(), {EventSource::acceptor});
  acceptor_.add_to(poll_.descriptor());
  incoming_ = acceptor_.open(members_.self());
  poll_.add(incoming_->event().get(), {EventSource::incoming}, EPOLLIN);
}

ConnectionState PeerConnections::state(int peer, std::uint32_t channel) const {
  const auto found = peers_.find(peer);
  return found == peers_.end() ? ConnectionState::none : found->second.states[channel];
}

void PeerConnections::connect(int peer, std::uint32_t channel, bool is_optional) {
  if (peers_[peer].states[channel] != ConnectionState::none || failures_.has_left(peer)) return;
  start(peer, channel, members_.is_on_this_host(peer), is_optional);
}

// Begins one connection: by a local socket on the same host, otherwise or if that fails by TCP. If descriptors are
// short, it is retried later.
void PeerConnections::start(int peer, std::uint32_t channel, bool is_local, bool is_optional) {
  ConnectionState& state = peers_[peer].states[channel];
  const ListeningAddress& address = members_.address_of(peer);
  int error = 0;
  auto socket = tcp::connect(address, is_local, error);
  if (!socket && is_exhausted(error) && acceptor_.make_room()) socket = tcp::connect(address, is_local, error);
  if (!socket && is_exhausted(error)) {
    state = ConnectionState::none;
    if (!is_optional) retries_.add_shortage(peer, channel, error);
    return;
  }
  if (!socket && is_local) return start(peer, channel, false, is_optional);
  if (!socket) return fail(peer, channel, error);
  retries_.end_shortage();
  state = ConnectionState::connecting;
  if (!is_local) limit_connecting(*socket, silence_);
  const int descriptor = socket->get();
  poll_.add(descriptor, {EventSource::handshake, peer, channel}, EPOLLIN);
  outgoing_.emplace(descriptor,
                    OutgoingConnection{Handshake::calling(std::move(*socket), acceptor_.key(), members_.self(),
                                                          static_cast<std::uint32_t>(peer), channel),
                                       is_local});
}

// Schedules a retry if the error may pass. Otherwise the peer counts as lost.
void PeerConnections::fail(int peer, std::uint32_t channel, int error) {
  ConnectionState& state = peers_[peer].states[channel];
  if (retries_.allows_retry(peer, channel, error)) {
    state = ConnectionState::none;
    return;
  }
  state = ConnectionState::over;
  failures_.lose(peer, text("it is not reached: ", std::strerror(error)), error);
}

// Starts the connections that are due, and gives up those that have taken too long.
void PeerConnections::retry() {
  for (const auto& due : retries_.take_due()) {
    for (std::uint32_t channel = 0; channel < channel_count; ++channel) {
      if (!due.channels[channel]) continue;
      if (due.is_given_up)
        set_over(due.peer, channel);
      else
        connect(due.peer, channel);
    }
    if (due.is_given_up) failures_.lose(due.peer, text("it is not reached: ", std::strerror(ETIMEDOUT)), ETIMEDOUT);
  }
}

void PeerConnections::give_up_data() {
  has_given_up_data_ = true;
  retries_.drop_data_connections();
}

std::map<int, PeerConnections::OutgoingConnection>::iterator PeerConnections::find_outgoing(int peer,
                                                                                            std::uint32_t channel) {
  return std::ranges::find_if(outgoing_, [&](const auto& each) {
    const EventKey& key = poll_.key_of(each.first);
    return key.peer == peer && key.channel == channel;
  });
}

// Takes an outgoing handshake out of the poll, because the other side's connection counts instead.
std::optional<Handshake> PeerConnections::release_handshake(int peer, std::uint32_t channel) {
  const auto found = find_outgoing(peer, channel);
  if (found == outgoing_.end()) return std::nullopt;
  poll_.remove(found->first);
  Handshake handshake = std::move(found->second.handshake);
  outgoing_.erase(found);
  return handshake;
}

// True if this member accepts the connection. If both sides connect at once, one of the two connections counts for
// both.
bool PeerConnections::accepts(int peer, std::uint32_t channel) {
  const ConnectionState state = this->state(peer, channel);
  if (state == ConnectionState::none || state == ConnectionState::awaited) return true;
  if (state != ConnectionState::connecting || peer > members_.rank()) return false;
  release_handshake(peer, channel);
  return true;
}

// Decides about the next introduced caller. Callers that are no members are dropped without an answer.
std::optional<OpenedConnection> PeerConnections::accept_next() {
  for (Handshake& each : incoming_->take()) introduced_.push_back(std::move(each));
  while (!introduced_.empty()) {
    Handshake handshake = std::move(introduced_.front());
    introduced_.pop_front();
    const std::uint32_t rank = handshake.from().rank;
    const std::uint32_t channel = handshake.channel();
    const auto peer = static_cast<int>(rank);
    const bool is_member =
        rank < static_cast<std::uint32_t>(members_.size()) && peer != members_.rank() && channel < channel_count;
    const bool is_too_late = has_given_up_data_ && channel != control_channel;
    if (!is_member || is_too_late) continue;
    const bool is_accepted = accepts(peer, channel);
    handshake.answer(is_accepted);
    const auto state = handshake.advance();
    if (is_accepted && state == HandshakeState::taken) return opened(peer, channel, handshake.take());
    if (is_accepted) peers_[peer].states[channel] = ConnectionState::none;
  }
  return std::nullopt;
}

// Continues an outgoing handshake. After a refusal the other side's connection is awaited.
std::optional<OpenedConnection> PeerConnections::advance(int socket) {
  auto& [handshake, is_local] = outgoing_.at(socket);
  const auto state = handshake.advance();
  if (state == HandshakeState::under_way) return std::nullopt;
  const EventKey key = poll_.key_of(socket);
  const int error = handshake.error();
  const bool was_local = is_local;
  Descriptor taken = handshake.take();
  if (taken)
    poll_.remove(socket);
  else
    poll_.remove_closed(socket);
  outgoing_.erase(socket);
  PeerLinks& links = peers_[key.peer];
  if (state == HandshakeState::taken) return opened(key.peer, key.channel, std::move(taken));
  if (state == HandshakeState::refused) {
    links.states[key.channel] = ConnectionState::awaited;
  } else if (was_local || (error == 0 && links.retries_after_close-- > 0)) {
    start(key.peer, key.channel, false);  // an ended process refuses; a process that only kept us waiting does not
  } else if (error != 0) {
    fail(key.peer, key.channel, error);
  } else {
    links.states[key.channel] = ConnectionState::over;
    failures_.lose(key.peer, "it exited while a connection was being made, or has another key", 0);
  }
  return std::nullopt;
}

OpenedConnection PeerConnections::opened(int peer, std::uint32_t channel, Descriptor socket) {
  peers_[peer].states[channel] = ConnectionState::open;
  retries_.set_connected(peer, channel);
  watch_host(socket, silence_);
  return {peer, channel, std::move(socket)};
}

}  // namespace lockstep::tcp
