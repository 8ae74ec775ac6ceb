// SPDX-License-Identifier: Apache-2.0
// Waits for events of many descriptors, and remembers the purpose of each.
//
// A TcpTransport owns it. It is an epoll descriptor with a table from descriptors to keys.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>

#include "collectives/tcp/socket.hpp"

namespace lockstep::tcp {

// Names the purpose of a descriptor.
enum class EventSource : std::uint8_t { acceptor, incoming, handshake, control, lane, process };

// Says to which peer and channel a descriptor belongs.
struct EventKey {
  EventSource source = EventSource::acceptor;
  int peer = -1;
  std::uint32_t channel = 0;
};

// Owns an epoll. It does not own the descriptors in it.
class EventPoll {
 public:
  // Throws Error system if there is no descriptor for it.
  EventPoll();

  // Returns the descriptor of the epoll, which can be read while events wait.
  const Descriptor& descriptor() const { return epoll_; }
  // Adds a descriptor, or gives it another key. Throws Error system.
  void add(int descriptor, const EventKey& key, std::uint32_t events);
  // Sets the key of a descriptor that somebody else adds to the epoll.
  void set_key(int descriptor, const EventKey& key) { keys_[descriptor] = key; }
  // Sets the events of a descriptor in the epoll.
  void change(int descriptor, std::uint32_t events);
  void remove(int descriptor);
  // Removes the key of a descriptor that has been closed.
  void remove_closed(int descriptor) { keys_.erase(descriptor); }

  bool contains(int descriptor) const { return keys_.contains(descriptor); }
  // Returns the key of a descriptor that was added.
  const EventKey& key_of(int descriptor) const { return keys_.at(descriptor); }
  // Calls `handle` with the descriptor, the key and the events of each descriptor that has events, at most 16 of them.
  template <class Handle>
  void handle_events(const Handle& handle) {
    constexpr int most = 16;
    std::array<epoll_event, most> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), most, 0);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      const auto found = keys_.find(event.data.fd);
      if (found == keys_.end()) continue;  // an earlier event has ended it
      const EventKey key = found->second;
      handle(found->first, key, event.events);
    }
  }

 private:
  Descriptor epoll_;
  std::map<int, EventKey> keys_;  // by descriptor
};

}  // namespace lockstep::tcp
