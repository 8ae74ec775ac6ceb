// SPDX-License-Identifier: Apache-2.0
// Implements the poll by one epoll.
#include "collectives/tcp/event_poll.hpp"

#include <cerrno>

#include "topology/base/error.hpp"

namespace lockstep::tcp {

EventPoll::EventPoll() : epoll_(made([] { return ::epoll_create1(EPOLL_CLOEXEC); })) {
  if (!epoll_)
    throw system_error("creating an epoll descriptor", errno, "check the limit of open descriptors (ulimit -n)");
}

void EventPoll::add(int descriptor, const EventKey& key, std::uint32_t events) {
  keys_[descriptor] = key;
  watch(epoll_, descriptor, events);
}

void EventPoll::change(int descriptor, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, descriptor, &event);
}

void EventPoll::remove(int descriptor) {
  keys_.erase(descriptor);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
}

}  // namespace lockstep::tcp
