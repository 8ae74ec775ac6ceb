// SPDX-License-Identifier: Apache-2.0
// Holds descriptors of sockets, and waits for events on them.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

namespace lockstep::rpc::detail {

// Owns a descriptor, and closes it.
class Socket {
 public:
  explicit Socket(int number = -1) : number_(number) {}
  ~Socket() {
    if (number_ >= 0) ::close(number_);
  }
  Socket(Socket&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  int get() const { return number_; }

 private:
  int number_;
};

// Is the set of descriptors whose events a thread waits for.
class Epoll {
 public:
  Epoll() : socket_(::epoll_create1(EPOLL_CLOEXEC)) {}
  // Returns a negative number if the system lacks descriptors.
  int get() const { return socket_.get(); }
  // Adds, changes or removes a descriptor (EPOLL_CTL_...). Returns false if the system refuses.
  bool watch(int descriptor, std::uint32_t events, int operation) const {
    epoll_event event{};
    event.events = events;
    event.data.fd = descriptor;
    return ::epoll_ctl(socket_.get(), operation, descriptor, &event) == 0;
  }

 private:
  Socket socket_;
};

void set_option(int socket, int level, int option, int value);
// Returns the address as text, without an IPv6 scope, and the port.
std::pair<std::string, std::uint16_t> name_of(const sockaddr_storage& address);

}  // namespace lockstep::rpc::detail
