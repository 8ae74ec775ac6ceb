// SPDX-License-Identifier: Apache-2.0
// Accepts callers, leads them to their members, and closes the connections of departed members in good order.
#include "collectives/tcp/acceptor.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <thread>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::tcp {
namespace {

constexpr std::size_t most_gone = 4096;             // communicators with kept LastWords
constexpr std::chrono::seconds strangers_have{10};  // time to prove the key
constexpr int looked_at_once = 16;                  // events, and connections accepted per listener
constexpr std::chrono::seconds others_take{5};
constexpr std::chrono::milliseconds ending_takes{500};
constexpr std::chrono::seconds shut_at_most{1};  // until descriptors are free again

// Allows a quarter of all descriptors. A member that computes may take seconds to prove the key, and many may call at
// once. So the limit is raised before a caller is refused.
constexpr std::size_t most_strangers_ever = 16'384;
std::size_t most_strangers() {
  constexpr std::size_t least = 16;
  return std::clamp(descriptor_limit() / 4, least, most_strangers_ever);
}

}  // namespace

Acceptor::IncomingConnections::IncomingConnections()
    : bell_(made([] { return ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); })) {
  if (!bell_) throw system_error("making a bell", errno, "look how many descriptors are left (ulimit -n)");
}

std::vector<Handshake> Acceptor::IncomingConnections::take() {
  const std::lock_guard lock(mutex_);
  std::uint64_t rings = 0;
  static_cast<void>(!::read(bell_.get(), &rings, sizeof rings));
  return std::exchange(all_, {});
}

void Acceptor::IncomingConnections::add(Handshake shake) {
  const std::lock_guard lock(mutex_);
  all_.push_back(std::move(shake));
  constexpr std::uint64_t once = 1;
  static_cast<void>(!::write(bell_.get(), &once, sizeof once));
}

Acceptor::Acceptor(const std::string& address, bool everywhere, std::shared_ptr<const Secret> key)
    : key_(std::move(key)),
      listeners_(listen_at(address, everywhere)),
      door_(made([] { return ::epoll_create1(EPOLL_CLOEXEC); })) {
  if (!door_) throw system_error("making a place to wait at", errno, "look how many descriptors are left (ulimit -n)");
  watch(listeners_.far);
  watch(listeners_.near);
}

Acceptor::~Acceptor() {
  const auto begin = std::chrono::steady_clock::now();
  for (move(); is_saying() && std::chrono::steady_clock::now() - begin < ending_takes; move())
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

void Acceptor::watch(const Descriptor& socket) const { tcp::watch(door_, socket.get(), EPOLLIN); }

// The kernel allows 500 epolls that watch one epoll (path_limits in fs/eventpoll.c), and fails with EINVAL beyond that.
void Acceptor::let_wait(const Descriptor& place) {
  if (try_to_watch(place, door_.get(), EPOLLIN)) return;
  if (errno != EINVAL) return tcp::watch(place, door_.get(), EPOLLIN);
  const std::lock_guard lock(mutex_);
  throw Error(Code::system,
              text("no room for another communicator over sockets: the kernel lets about 500 of a process wait at one "
                   "port (nested epoll), and ",
                   here_.size(), " are live"),
              "end communicators that are no longer used; over MPI about twice as many can live");
}

std::shared_ptr<Acceptor::IncomingConnections> Acceptor::open(const MemberId& member) {
  const std::lock_guard lock(mutex_);
  auto callers = std::make_shared<IncomingConnections>();
  here_[member] = callers;
  lead_introduced();
  return callers;
}

void Acceptor::close(const MemberId& member, std::uint32_t channel, LastWords last_words) {
  const std::lock_guard lock(mutex_);
  DepartedMember& gone = gone_[member] = {channel, std::move(last_words)};
  const auto here = here_.find(member);
  for (Handshake& shake : here->second->take()) tell_last_words(shake, gone);
  here_.erase(here);
  hook_.busy();  // from now on, because a rank that still waits for the departed member calls here
  order_of_going_.push_back(member);
  if (order_of_going_.size() <= most_gone) return;
  gone_.erase(order_of_going_.front());
  order_of_going_.pop_front();
}

void Acceptor::see_off(Descriptor socket, Bytes rest) {
  const std::lock_guard lock(mutex_);
  see_off_inside(std::move(socket), std::move(rest));
}

void Acceptor::see_off_inside(Descriptor socket, Bytes rest) {
  ClosingConnection one{std::move(socket), std::move(rest), 0, std::chrono::steady_clock::now()};
  if (is_over(one)) return;
  leaving_.push_back(std::move(one));
}

// Never turns away a caller for the sake of unproven connections: the oldest of them makes room.
int Acceptor::let_in(const Descriptor& listener) {
  for (int i = 0; i < looked_at_once; ++i) {
    int error = 0;
    auto socket = accept(listener, error);
    if (!socket && error != 0 && drop_oldest()) socket = accept(listener, error);
    if (!socket) return error;
    const int number = socket->get();
    watch(*socket);
    strangers_.push_back({Handshake::called(std::move(*socket), key_), std::chrono::steady_clock::now()});
    by_socket_[number] = std::prev(strangers_.end());
    move_stranger(number);  // sends its challenge
    if (strangers_.size() <= most_strangers()) continue;
    if (strangers_.size() > most_strangers_ever || !raise_limit()) drop_oldest();
  }
  return 0;
}

void Acceptor::remember_shut(int error) {
  const auto now = std::chrono::steady_clock::now();
  if (error == 0 || shut_since_ == std::chrono::steady_clock::time_point{})
    shut_since_ = error == 0 ? decltype(now){} : now;
  why_shut_ = error != 0 && now - shut_since_ > shut_at_most ? error : 0;
}

void Acceptor::move_stranger(int socket) {
  const auto found = by_socket_.find(socket);
  if (found == by_socket_.end()) return;
  ++looks_;
  const auto which = found->second;
  const auto state = which->shake.advance();
  if (state == HandshakeState::under_way) return;
  by_socket_.erase(found);
  if (state == HandshakeState::introduced) {
    ::epoll_ctl(door_.get(), EPOLL_CTL_DEL, socket, nullptr);
    if (!lead(which->shake)) introduced_.push_back(std::move(which->shake));
  }
  strangers_.erase(which);
}

bool Acceptor::drop_oldest() {
  if (strangers_.empty()) return false;
  by_socket_.erase(strangers_.front().shake.socket().get());
  strangers_.pop_front();
  return true;
}

void Acceptor::drop_late() {
  if (strangers_.empty()) return;
  const auto now = std::chrono::steady_clock::now();
  while (!strangers_.empty() && now - strangers_.front().since > strangers_have) drop_oldest();
}

bool Acceptor::make_room() {
  const std::lock_guard lock(mutex_);
  return drop_oldest();
}

std::size_t Acceptor::strangers() const {
  const std::lock_guard lock(mutex_);
  return strangers_.size();
}

// Leads callers to the members that they want. A member that is not here yet may still come.
void Acceptor::lead_introduced() {
  introduced_.remove_if([this](Handshake& each) { return lead(each); });
}

bool Acceptor::lead(Handshake& shake) {
  const auto here = here_.find(shake.to());
  if (here != here_.end()) {
    here->second->add(std::move(shake));
    return true;
  }
  const auto gone = gone_.find(shake.to());
  if (gone == gone_.end()) return false;
  tell_last_words(shake, gone->second);
  return true;
}

void Acceptor::tell_last_words(Handshake& shake, DepartedMember& gone) {
  if (gone.channel != shake.channel()) return;
  shake.answer(true);
  if (shake.advance() != HandshakeState::taken) return;
  const auto own = gone.last_words.own.find(shake.from().rank);
  see_off_inside(shake.take(), own == gone.last_words.own.end() ? gone.last_words.others : std::move(own->second));
  if (own != gone.last_words.own.end()) gone.last_words.own.erase(own);
}

void Acceptor::see_off(Handshake shake, Bytes rest) {
  const std::lock_guard lock(mutex_);
  messengers_.push_back({std::move(shake), std::move(rest), std::chrono::steady_clock::now()});
}

void Acceptor::move_messengers() {
  if (messengers_.empty()) return;
  const auto now = std::chrono::steady_clock::now();
  for (auto each = messengers_.begin(); each != messengers_.end();) {
    const auto state = each->shake.advance();
    if (state == HandshakeState::taken) see_off_inside(each->shake.take(), std::move(each->rest));
    const bool goes_on = state == HandshakeState::under_way && now - each->since < others_take;
    each = goes_on ? std::next(each) : messengers_.erase(each);
  }
}

bool Acceptor::is_over(ClosingConnection& one) {
  while (one.said < one.rest.size()) {
    iovec part{one.rest.data() + one.said, one.rest.size() - one.said};
    const IoResult moved = write(one.socket, {&part, 1});
    if (moved.is_over) return true;
    if (moved.bytes == 0) break;
    one.said += moved.bytes;
  }
  if (one.said == one.rest.size()) ::shutdown(one.socket.get(), SHUT_WR);
  std::array<std::byte, 4096> nowhere;
  for (;;) {
    const IoResult moved = read(one.socket, nowhere);
    if (moved.is_over) return true;
    if (moved.bytes == 0) return false;
  }
}

// Looks only at connections that have sent something, so the work of one call does not grow with their number.
void Acceptor::move() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  std::array<epoll_event, looked_at_once> events;
  const int count = ::epoll_wait(door_.get(), events.data(), looked_at_once, 0);
  int error = 0;
  bool is_called = false;
  for (int i = 0; i < count; ++i) {
    const int socket = events[static_cast<std::size_t>(i)].data.fd;
    if (socket != listeners_.far.get() && socket != listeners_.near.get()) {
      move_stranger(socket);
      continue;
    }
    is_called = true;
    const int shut = let_in(socket == listeners_.far.get() ? listeners_.far : listeners_.near);
    if (shut != 0) error = shut;
  }
  if (is_called || count <= 0) remember_shut(error);
  drop_late();
  move_messengers();
  if (leaving_.empty()) return;
  const auto now = std::chrono::steady_clock::now();
  leaving_.remove_if([now](ClosingConnection& each) { return is_over(each) || now - each.since > others_take; });
}

bool Acceptor::is_saying() {
  const std::lock_guard lock(mutex_);
  return !messengers_.empty() ||
         std::ranges::any_of(leaving_, [](const ClosingConnection& each) { return each.said < each.rest.size(); });
}

}  // namespace lockstep::tcp
