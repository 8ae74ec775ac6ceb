// SPDX-License-Identifier: Apache-2.0
// Makes the connections between two ranks, and interprets their end. The rank that first has something to send
// connects. If both connect at once, the connection of the lower rank counts.
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "collectives/tcp/transport.hpp"
#include "topology/base/text.hpp"

namespace lockstep::tcp {

void TcpTransport::watch(const Descriptor& socket, const EpollEntry& door, std::uint32_t events) {
  at_[socket.get()] = door;
  tcp::watch(doors_, socket.get(), events);
}

void TcpTransport::change(const Descriptor& socket, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = socket.get();
  ::epoll_ctl(doors_.get(), EPOLL_CTL_MOD, socket.get(), &event);
}

void TcpTransport::unwatch(int socket) {
  at_.erase(socket);
  ::epoll_ctl(doors_.get(), EPOLL_CTL_DEL, socket, nullptr);
}

// Watches the process itself, because its connections stay open if a child of it holds them.
void TcpTransport::watch_process(int number) {
  const auto& process = roster_.process_of(number);
  if (!process) return;
  at_[process->descriptor()] = {EpollTarget::process, number};
  tcp::watch(doors_, process->descriptor(), EPOLLIN);
}

// Reports the end of a process for all its ranks. Their last messages are here or about to come, and may say that they
// have left.
void TcpTransport::end_process(int descriptor) {
  unwatch(descriptor);
  for (const auto& [number, one] : peers_) {
    const auto& process = roster_.process_of(number);
    if (!process || process->descriptor() != descriptor || !one->words.is_open()) continue;
    move_words(number);
    lose(number, "its process has ended, or was ended", ECONNREFUSED);
  }
}

void TcpTransport::look_at_doors() {
  constexpr int most = 16;
  std::array<epoll_event, most> events;
  const int count = ::epoll_wait(doors_.get(), events.data(), most, 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    const auto found = at_.find(event.data.fd);
    if (found == at_.end()) continue;  // it ended meanwhile
    const EpollEntry door = found->second;
    come_to(event.data.fd, door, event.events);
  }
}

void TcpTransport::come_to(int socket, const EpollEntry& door, std::uint32_t events) {
  switch (door.kind) {
    case EpollTarget::acceptor:
      return acceptor_.move();
    case EpollTarget::incoming:
      return let_in();
    case EpollTarget::handshake:
      return move_handshake(socket);
    case EpollTarget::words:
      return move_words(door.peer);
    case EpollTarget::process:
      return end_process(socket);
    case EpollTarget::lane:  // the other side has closed it; its earlier data can still be read
      if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) == 0) return;
      unwatch(peer(door.peer).lanes[door.channel].socket());
      reach(door.peer, words_channel);
  }
}

// Connects, if neither side has.
void TcpTransport::reach(int number, std::uint32_t channel) {
  TcpPeer& one = peer(number);
  if (one.links[channel] != ConnectionState::none || one.has_left) return;
  const ListeningAddress& mine = acceptor_.place();
  call(number, channel, places_[static_cast<std::size_t>(number)].is_on_host_of(mine));
}

void TcpTransport::call(int number, std::uint32_t channel, bool near) {
  int error = 0;
  const ListeningAddress& place = places_[static_cast<std::size_t>(number)];
  auto socket = connect(place, near, error);
  if (!socket && is_exhausted(error) && acceptor_.make_room()) socket = connect(place, near, error);
  if (!socket && is_exhausted(error)) {
    peer(number).links[channel] = ConnectionState::none;
    if (!no_room_) no_room_ = ConnectionShortage{error, Clock::now()};
    return;
  }
  if (!socket && near) return call(number, channel, false);
  if (socket) no_room_.reset();
  if (!socket) return fail_to_reach(number, channel, error);
  peer(number).links[channel] = ConnectionState::calling;
  if (!near) limit_connecting(*socket, shared_->silence);
  const int at = socket->get();
  watch(*socket, {EpollTarget::handshake, number, channel}, EPOLLIN);
  calling_.emplace(at, OutgoingConnection{Handshake::calling(std::move(*socket), acceptor_.key(), me_,
                                                             static_cast<std::uint32_t>(number), channel),
                                          near});
}

// Tries again later if the route to the host is gone, for as long as a host may be silent. It also tries again after a
// reset, because a busy process may have reset the connection to make room. A process that computes may accept nobody,
// so a timeout leads to a question to its host.
void TcpTransport::fail_to_reach(int number, std::uint32_t channel, int error) {
  TcpPeer& one = peer(number);
  const auto now = Clock::now();
  if (!one.unreached_since) one.unreached_since = now;
  const bool is_reset = error == ECONNRESET || error == EPIPE;
  if ((is_no_way(error) && now - *one.unreached_since < shared_->silence) ||
      (is_reset && one.calls_after_reset-- > 0) || (error == ETIMEDOUT && asks_host(number))) {
    one.links[channel] = ConnectionState::none;
    one.is_unreached[channel] = true;
    has_unreached_ = true;
    return;
  }
  one.links[channel] = ConnectionState::over;
  lose(number, text("it is not reached: ", std::strerror(error)), error);
}

// Connects to a port without a listener: a host that is there refuses, regardless of its processes.
bool TcpTransport::asks_host(int number) {
  constexpr std::uint16_t of_discard = 9;
  TcpPeer& one = peer(number);
  if (one.question) return true;
  ListeningAddress host = places_[static_cast<std::size_t>(number)];
  host.port = of_discard;
  int error = 0;
  auto socket = connect(host, false, error);
  if (socket) one.question = HostQuestion{std::move(*socket), Clock::now()};
  if (error == ECONNREFUSED) one.unreached_since.reset();
  return socket || error == ECONNREFUSED || is_exhausted(error);
}

// Returns false if there is no answer yet, or if none came in time; then the rank is lost.
bool TcpTransport::is_host_there(int number, TcpPeer& one) {
  constexpr std::chrono::milliseconds answer_takes{500};
  if (!one.question) return true;
  const Descriptor& knocking = one.question->knocking;
  const int error = error_of(knocking);
  const bool answers = error == ECONNREFUSED || is_connected(knocking);
  if (!answers && error == 0 && Clock::now() - one.question->since < answer_takes) {
    has_unreached_ = true;
    return false;
  }
  one.question.reset();
  one.unreached_since.reset();
  if (answers) return true;
  for (std::uint32_t channel = 0; channel < channel_count; ++channel) {
    if (std::exchange(one.is_unreached[channel], false)) one.links[channel] = ConnectionState::over;
  }
  lose(number, text("it is not reached: ", std::strerror(ETIMEDOUT)), ETIMEDOUT);
  return false;
}

// True if this rank takes the connection. If both connect at once, one of the two connections counts for both.
bool TcpTransport::takes(int number, std::uint32_t channel) {
  ConnectionState& link = peer(number).links[channel];
  if (link == ConnectionState::none || link == ConnectionState::awaited) return true;
  if (link != ConnectionState::calling || number > rank()) return false;
  const auto mine = std::ranges::find_if(calling_, [&](const auto& each) {
    const EpollEntry& door = at_.at(each.first);
    return door.peer == number && door.channel == channel;
  });
  unwatch(mine->second.shake.socket());
  calling_.erase(mine);
  return true;
}

void TcpTransport::let_in() {
  for (Handshake& shake : incoming_->take()) {
    const std::uint32_t from = shake.from().rank;
    const auto number = static_cast<int>(from);
    const bool is_member =
        from < static_cast<std::uint32_t>(size()) && number != rank() && shake.channel() < channel_count;
    const bool is_too_late = is_given_up_ && shake.channel() != words_channel;
    if (!is_member || is_too_late) continue;
    const bool is_taken = takes(number, shake.channel());
    shake.answer(is_taken);
    const auto state = shake.advance();
    if (is_taken && state == HandshakeState::taken) open(number, shake.channel(), shake.take());
    if (is_taken && state != HandshakeState::taken) peer(number).links[shake.channel()] = ConnectionState::none;
  }
}

void TcpTransport::move_handshake(int socket) {
  auto& [shake, near] = calling_.at(socket);
  const auto state = shake.advance();
  if (state == HandshakeState::under_way) return;
  const EpollEntry door = at_.at(socket);
  const int error = shake.error();
  Descriptor taken = shake.take();
  const bool was_near = near;
  if (taken)
    unwatch(taken);
  else
    at_.erase(socket);
  calling_.erase(socket);
  ConnectionState& link = peer(door.peer).links[door.channel];
  if (state == HandshakeState::taken) return open(door.peer, door.channel, std::move(taken));
  if (state == HandshakeState::refused) {
    link = ConnectionState::awaited;
  } else if (was_near || (error == 0 && peer(door.peer).calls_again-- > 0)) {
    call(door.peer, door.channel, false);  // an ended process refuses; a process that only kept us waiting does not
  } else if (error != 0) {
    fail_to_reach(door.peer, door.channel, error);
  } else {
    link = ConnectionState::over;
    lose(door.peer, "it ended while a connection was being made, or has another key", 0);
  }
}

void TcpTransport::open(int number, std::uint32_t channel, Descriptor socket) {
  TcpPeer& one = peer(number);
  one.links[channel] = ConnectionState::open;
  one.unreached_since.reset();
  one.calls_after_reset = most_calls_after_reset;
  watch_host(socket, shared_->silence);
  if (channel != words_channel) {
    watch(socket, {EpollTarget::lane, number, channel}, EPOLLRDHUP);
    one.lanes[channel].open(std::move(socket));
    return move(number, static_cast<int>(channel));
  }
  watch(socket, {EpollTarget::words, number, channel}, EPOLLIN);
  one.words.open(std::move(socket));
  watch_process(number);
  move_words(number);
}

void TcpTransport::flush_words(int number) {
  TcpPeer& one = peer(number);
  if (!one.words.is_open()) return;
  const bool had_unsent = one.words.has_unsent();
  const auto outcome = one.words.flush();
  if (outcome.bad) bad_ = outcome.bad;
  if (outcome.is_over) {
    hear_words(number);  // it may have said farewell before
    return close_words(number, outcome.error);
  }
  if (had_unsent || one.words.has_unsent())
    change(one.words.socket(), one.words.has_unsent() ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void TcpTransport::move_words(int number) {
  const auto outcome = hear_words(number);
  if (outcome.is_over) return close_words(number, outcome.error);
  flush_words(number);
}

WordStream::WordProgress TcpTransport::hear_words(int number) {
  TcpPeer& one = peer(number);
  const auto outcome = one.words.receive(words_);
  if (outcome.bad) bad_ = outcome.bad;
  for (Bytes& each : words_) heard_.push_back({number, std::move(each)});
  words_.clear();
  if (one.words.has_heard_farewell()) one.has_left = true;
  return outcome;
}

void TcpTransport::close_lane(int number, int lane, int error) {
  TcpPeer& one = peer(number);
  LaneStream& stream = one.lanes[static_cast<std::size_t>(lane)];
  if (!stream.is_open()) return;
  if (at_.contains(stream.socket().get())) unwatch(stream.socket());
  stream.take();
  one.links[static_cast<std::size_t>(lane)] = ConnectionState::over;
  if (is_given_up_) return;
  one.breaks[static_cast<std::size_t>(lane)] = BrokenConnection{error, Clock::now()};
  has_breaks_ = true;
  reach(number, words_channel);
}

// Assumes that all earlier messages of that rank were read.
void TcpTransport::close_words(int number, int error) {
  TcpPeer& one = peer(number);
  unwatch(one.words.socket());
  one.words.close();
  one.links[words_channel] = ConnectionState::over;
  if (one.has_left) return;
  if (error == ETIMEDOUT || is_no_way(error)) return lose(number, silence_of_host(error), error);
  const bool is_reset = error == ECONNRESET || error == EPIPE;
  lose(number,
       error == 0 ? "was closed"
       : is_reset ? "was reset"
                  : text("failed: ", std::strerror(error)),
       error, true);
}

std::string TcpTransport::silence_of_host(int error) const {
  return text("nothing has come from its host for ",
              format_duration(std::chrono::duration_cast<Duration>(shared_->silence)), ": ", std::strerror(error));
}

}  // namespace lockstep::tcp
