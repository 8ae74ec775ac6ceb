// SPDX-License-Identifier: Apache-2.0
// Accepts callers, and gives their connections to the members that they want.
#include "collectives/tcp/acceptor.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>
#include <utility>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::tcp {
namespace {

constexpr std::size_t max_departed = 4096;  // communicators with kept LeaveMessages
constexpr int max_events = 16;              // events at once, and connections accepted per listener
constexpr std::chrono::milliseconds ending_takes{500};
constexpr std::chrono::seconds error_lasts{1};  // until descriptors are free again

}  // namespace

Acceptor::IncomingConnections::IncomingConnections()
    : event_(made([] { return ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); })) {
  if (!event_)
    throw system_error("creating an event descriptor", errno, "check the limit of open descriptors (ulimit -n)");
}

std::vector<Handshake> Acceptor::IncomingConnections::take() {
  const std::lock_guard lock(mutex_);
  std::uint64_t count = 0;
  static_cast<void>(!::read(event_.get(), &count, sizeof count));
  return std::exchange(all_, {});
}

void Acceptor::IncomingConnections::add(Handshake handshake) {
  const std::lock_guard lock(mutex_);
  all_.push_back(std::move(handshake));
  constexpr std::uint64_t once = 1;
  static_cast<void>(!::write(event_.get(), &once, sizeof once));
}

Acceptor::Acceptor(const std::string& address, bool everywhere, std::shared_ptr<const Secret> key)
    : key_(std::move(key)),
      listeners_(listen_at(address, everywhere)),
      epoll_(made([] { return ::epoll_create1(EPOLL_CLOEXEC); })),
      unverified_(epoll_, key_) {
  if (!epoll_)
    throw system_error("creating an epoll descriptor", errno, "check the limit of open descriptors (ulimit -n)");
  watch(epoll_, listeners_.inet.get(), EPOLLIN);
  watch(epoll_, listeners_.unix_domain.get(), EPOLLIN);
}

Acceptor::~Acceptor() {
  const auto begin = std::chrono::steady_clock::now();
  for (progress(); is_sending() && std::chrono::steady_clock::now() - begin < ending_takes; progress())
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

// The kernel allows 500 epolls that watch one epoll (path_limits in fs/eventpoll.c), and fails with EINVAL beyond that.
void Acceptor::add_to(const Descriptor& epoll) {
  if (try_to_watch(epoll, epoll_.get(), EPOLLIN)) return;
  if (errno != EINVAL) return watch(epoll, epoll_.get(), EPOLLIN);
  const std::lock_guard lock(mutex_);
  throw Error(Code::system,
              text("no room for another communicator over sockets: the kernel lets about 500 of a process wait at one "
                   "port (nested epoll), and ",
                   members_.size(), " are live"),
              "end communicators that are no longer used; over MPI about twice as many can live");
}

std::shared_ptr<Acceptor::IncomingConnections> Acceptor::open(const MemberId& member) {
  const std::lock_guard lock(mutex_);
  auto incoming = std::make_shared<IncomingConnections>();
  members_[member] = incoming;
  deliver_introduced();
  return incoming;
}

void Acceptor::close(const MemberId& member, std::uint32_t channel, LeaveMessages messages) {
  const std::lock_guard lock(mutex_);
  DepartedMember& departed = departed_[member] = {channel, std::move(messages)};
  const auto found = members_.find(member);
  for (Handshake& each : found->second->take()) send_leave_message(each, departed);
  members_.erase(found);
  hook_.busy();  // from now on, because a rank that still waits for the departed member calls here
  departure_order_.push_back(member);
  if (departure_order_.size() <= max_departed) return;
  departed_.erase(departure_order_.front());
  departure_order_.pop_front();
}

void Acceptor::close_connection(Descriptor socket, Bytes rest) {
  const std::lock_guard lock(mutex_);
  closing_.add(std::move(socket), std::move(rest));
}

void Acceptor::close_connection(Handshake handshake, Bytes rest) {
  const std::lock_guard lock(mutex_);
  closing_.add(std::move(handshake), std::move(rest));
}

// Never turns away a caller for the sake of unproven connections: the oldest of them makes room.
int Acceptor::accept_callers(const Descriptor& listener) {
  for (int i = 0; i < max_events; ++i) {
    int error = 0;
    auto socket = accept(listener, error);
    if (!socket && error != 0 && unverified_.drop_oldest()) socket = accept(listener, error);
    if (!socket) return error;
    ++unverified_advances_;
    deliver_or_keep(unverified_.add(std::move(*socket)));
  }
  return 0;
}

void Acceptor::remember_accept_error(int error) {
  const auto now = std::chrono::steady_clock::now();
  if (error == 0 || error_since_ == std::chrono::steady_clock::time_point{})
    error_since_ = error == 0 ? decltype(now){} : now;
  accept_error_ = error != 0 && now - error_since_ > error_lasts ? error : 0;
}

bool Acceptor::make_room() {
  const std::lock_guard lock(mutex_);
  return unverified_.drop_oldest();
}

std::size_t Acceptor::unverified_count() const {
  const std::lock_guard lock(mutex_);
  return unverified_.size();
}

// A member that is not here yet may still come.
void Acceptor::deliver_introduced() {
  introduced_.remove_if([this](Handshake& each) { return deliver(each); });
}

void Acceptor::deliver_or_keep(std::optional<Handshake> introduced) {
  if (introduced && !deliver(*introduced)) introduced_.push_back(std::move(*introduced));
}

bool Acceptor::deliver(Handshake& handshake) {
  const auto member = members_.find(handshake.to());
  if (member != members_.end()) {
    member->second->add(std::move(handshake));
    return true;
  }
  const auto departed = departed_.find(handshake.to());
  if (departed == departed_.end()) return false;
  send_leave_message(handshake, departed->second);
  return true;
}

void Acceptor::send_leave_message(Handshake& handshake, DepartedMember& departed) {
  if (departed.channel != handshake.channel()) return;
  handshake.answer(true);
  if (handshake.advance() != HandshakeState::taken) return;
  auto& [own, others] = departed.messages;
  const auto found = own.find(handshake.from().rank);
  closing_.add(handshake.take(), found == own.end() ? others : std::move(found->second));
  if (found != own.end()) own.erase(found);
}

// Looks only at connections that have sent something, so the work of one call does not grow with their number.
void Acceptor::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  std::array<epoll_event, max_events> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), max_events, 0);
  int error = 0;
  bool is_called = false;
  for (int i = 0; i < count; ++i) {
    const int socket = events[static_cast<std::size_t>(i)].data.fd;
    if (socket != listeners_.inet.get() && socket != listeners_.unix_domain.get()) {
      ++unverified_advances_;
      deliver_or_keep(unverified_.advance(socket));
      continue;
    }
    is_called = true;
    const int failure = accept_callers(socket == listeners_.inet.get() ? listeners_.inet : listeners_.unix_domain);
    if (failure != 0) error = failure;
  }
  if (is_called || count <= 0) remember_accept_error(error);
  unverified_.drop_late();
  closing_.progress();
}

bool Acceptor::is_sending() {
  const std::lock_guard lock(mutex_);
  return closing_.is_sending();
}

}  // namespace lockstep::tcp
