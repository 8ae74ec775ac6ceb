// SPDX-License-Identifier: Apache-2.0
#include "collectives/tcp/reception.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "topology/base/error.hpp"

namespace lockstep::tcp {
namespace {

constexpr std::size_t most_gone = 4096;             // communicators whose last words are kept
constexpr std::chrono::seconds strangers_have{10};  // to prove who they are
constexpr std::chrono::seconds others_take{5};
constexpr std::chrono::milliseconds ending_takes{500};
constexpr std::chrono::seconds shut_at_most{1};  // until descriptors are free again

}  // namespace

Reception::Callers::Callers() : bell_(made([] { return ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); })) {
  if (!bell_) throw system_error("making a bell", errno, "look how many descriptors are left (ulimit -n)");
}

std::vector<Handshake> Reception::Callers::take() {
  const std::lock_guard lock(mutex_);
  std::uint64_t rings = 0;
  static_cast<void>(!::read(bell_.get(), &rings, sizeof rings));
  return std::exchange(all_, {});
}

void Reception::Callers::add(Handshake shake) {
  const std::lock_guard lock(mutex_);
  all_.push_back(std::move(shake));
  constexpr std::uint64_t once = 1;
  static_cast<void>(!::write(bell_.get(), &once, sizeof once));
}

Reception::Reception(const std::string& address, bool everywhere, std::shared_ptr<const Secret> key)
    : key_(std::move(key)),
      listeners_(listen_at(address, everywhere)),
      door_(made([] { return ::epoll_create1(EPOLL_CLOEXEC); })) {
  if (!door_) throw system_error("making a place to wait at", errno, "look how many descriptors are left (ulimit -n)");
  watch(listeners_.far);
  watch(listeners_.near);
}

Reception::~Reception() {
  const auto begin = std::chrono::steady_clock::now();
  for (move(); is_saying() && std::chrono::steady_clock::now() - begin < ending_takes; move())
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

void Reception::watch(const Descriptor& socket) const { tcp::watch(door_, socket.get(), EPOLLIN); }

std::shared_ptr<Reception::Callers> Reception::open(const Desk& desk) {
  const std::lock_guard lock(mutex_);
  auto callers = std::make_shared<Callers>();
  here_[desk] = callers;
  lead();
  return callers;
}

void Reception::close(const Desk& desk, std::uint32_t channel, LastWords last_words) {
  const std::lock_guard lock(mutex_);
  Gone& gone = gone_[desk] = {channel, std::move(last_words)};
  const auto here = here_.find(desk);
  for (Handshake& shake : here->second->take()) tell_last_words(shake, gone);
  here_.erase(here);
  mover_.busy();  // from now on: whoever waits for it, though it has left, calls here
  order_of_going_.push_back(desk);
  if (order_of_going_.size() <= most_gone) return;
  gone_.erase(order_of_going_.front());
  order_of_going_.pop_front();
}

void Reception::see_off(Descriptor socket, Bytes rest) {
  const std::lock_guard lock(mutex_);
  see_off_inside(std::move(socket), std::move(rest));
}

void Reception::see_off_inside(Descriptor socket, Bytes rest) {
  Leaving one{std::move(socket), std::move(rest), 0, std::chrono::steady_clock::now()};
  if (is_over(one)) return;
  leaving_.push_back(std::move(one));
}

// What it could not do, as errno says it.
int Reception::let_in(const Descriptor& listener) {
  int error = 0;
  while (auto socket = accept(listener, error)) {
    watch(*socket);
    shaking_.push_back({Handshake::called(std::move(*socket), key_), std::chrono::steady_clock::now()});
  }
  return error;
}

void Reception::remember_shut(int error) {
  const auto now = std::chrono::steady_clock::now();
  if (error == 0 || shut_since_ == std::chrono::steady_clock::time_point{})
    shut_since_ = error == 0 ? decltype(now){} : now;
  why_shut_ = error != 0 && now - shut_since_ > shut_at_most ? error : 0;
}

// Those who have introduced themselves to whom they want; who is not there yet may come.
void Reception::lead() {
  const auto now = std::chrono::steady_clock::now();
  for (auto each = shaking_.begin(); each != shaking_.end();) {
    auto& [shake, since] = *each;
    const bool was_known = shake.state() == Handshake::State::introduced;
    const auto state = shake.advance();
    if (state == Handshake::State::introduced && !was_known)
      ::epoll_ctl(door_.get(), EPOLL_CTL_DEL, shake.socket().get(), nullptr);
    const bool is_led = state == Handshake::State::introduced && lead(shake);
    const bool is_late = now - since > strangers_have && state == Handshake::State::under_way;
    each = is_led || is_late || state == Handshake::State::failed ? shaking_.erase(each) : std::next(each);
  }
}

bool Reception::lead(Handshake& shake) {
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

void Reception::tell_last_words(Handshake& shake, Gone& gone) {
  if (gone.channel != shake.channel()) return;
  shake.answer(true);
  if (shake.advance() != Handshake::State::taken) return;
  const auto own = gone.last_words.own.find(shake.from().rank);
  see_off_inside(shake.take(), own == gone.last_words.own.end() ? gone.last_words.others : std::move(own->second));
  if (own != gone.last_words.own.end()) gone.last_words.own.erase(own);
}

void Reception::see_off(Handshake shake, Bytes rest) {
  const std::lock_guard lock(mutex_);
  messengers_.push_back({std::move(shake), std::move(rest), std::chrono::steady_clock::now()});
}

void Reception::move_messengers() {
  const auto now = std::chrono::steady_clock::now();
  for (auto each = messengers_.begin(); each != messengers_.end();) {
    const auto state = each->shake.advance();
    if (state == Handshake::State::taken) see_off_inside(each->shake.take(), std::move(each->rest));
    const bool goes_on = state == Handshake::State::under_way && now - each->since < others_take;
    each = goes_on ? std::next(each) : messengers_.erase(each);
  }
}

bool Reception::is_over(Leaving& one) {
  while (one.said < one.rest.size()) {
    iovec part{one.rest.data() + one.said, one.rest.size() - one.said};
    const Moved moved = write(one.socket, {&part, 1});
    if (moved.is_over) return true;
    if (moved.bytes == 0) break;
    one.said += moved.bytes;
  }
  if (one.said == one.rest.size()) ::shutdown(one.socket.get(), SHUT_WR);
  std::array<std::byte, 4096> nowhere;
  for (;;) {
    const Moved moved = read(one.socket, nowhere);
    if (moved.is_over) return true;
    if (moved.bytes == 0) return false;
  }
}

void Reception::move() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  epoll_event any{};
  const bool is_called = ::epoll_wait(door_.get(), &any, 1, 0) > 0;
  if (!is_called) remember_shut(0);
  if (!is_called && shaking_.empty() && messengers_.empty() && leaving_.empty()) return;
  const int far = let_in(listeners_.far);
  const int near = let_in(listeners_.near);
  remember_shut(far != 0 ? far : near);
  lead();
  move_messengers();
  const auto now = std::chrono::steady_clock::now();
  leaving_.remove_if([now](Leaving& each) { return is_over(each) || now - each.since > others_take; });
}

bool Reception::is_saying() {
  const std::lock_guard lock(mutex_);
  return !messengers_.empty() ||
         std::ranges::any_of(leaving_, [](const Leaving& each) { return each.said < each.rest.size(); });
}

}  // namespace lockstep::tcp
