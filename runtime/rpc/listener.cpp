// SPDX-License-Identifier: Apache-2.0
// Binds addresses, accepts connections, and runs the thread.
#include "runtime/rpc/listener.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <set>

#include "runtime/cluster/cluster_spec.hpp"
#include "topology/base/descriptor_limit.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::rpc::detail {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t accepted_at_once = 64;  // a guess
constexpr milliseconds between_looks{100};
constexpr milliseconds until_room{10};

bool is_exhausted(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

}  // namespace

Listener::Listener(const std::string& address) : bell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  const std::size_t colon = address.rfind(':');
  const std::string host = host_of(address);
  const std::string port = address.substr(colon + 1);
  constexpr int attempts = 16;  // A port that is free at one address may be taken at the next.
  int error = EADDRINUSE;
  for (int i = 0; i < (port == "0" ? attempts : 1) && error == EADDRINUSE; ++i) error = bind_all(host, port);
  if (error != 0 || epoll_.get() < 0 || bell_.get() < 0)
    throw Error(
        Code::system,
        text("no server can listen on ", printable(address), ": ",
             error == EADDRINUSE || error == EADDRNOTAVAIL ? "it is in use, or no address of this machine"
                                                           : std::strerror(error != 0 ? error : EMFILE)),
        "take a free port of this machine, or port 0; in a cluster, check that no two tasks have the same index");
  for (const Socket& each : listening_) epoll_.watch(each.get(), EPOLLIN, EPOLL_CTL_ADD);
  epoll_.watch(bell_.get(), EPOLLIN, EPOLL_CTL_ADD);
}

Listener::~Listener() { stop(); }

// Binds all addresses of a host to one port. Returns 0 or errno.
int Listener::bind_all(const std::string& host, const std::string& port) {
  listening_.clear();
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return EADDRNOTAVAIL;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, &::freeaddrinfo);
  std::uint16_t chosen = 0;
  std::set<std::string> bound;  // A hosts file may list an address twice.
  int error = EADDRNOTAVAIL;
  for (const addrinfo* each = all.get(); each != nullptr; each = each->ai_next) {
    sockaddr_storage name{};
    std::memcpy(&name, each->ai_addr, each->ai_addrlen);
    auto& of_four = reinterpret_cast<sockaddr_in&>(name);
    auto& of_six = reinterpret_cast<sockaddr_in6&>(name);
    in_port_t& at = name.ss_family == AF_INET6 ? of_six.sin6_port : of_four.sin_port;
    if (chosen != 0) at = htons(chosen);
    if (bound.contains(name_of(name).first)) continue;
    Socket socket(::socket(name.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR,
               1);  // Connections of an earlier server may still be in TIME_WAIT.
    const bool is_any_six = name.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&of_six.sin6_addr);
    if (name.ss_family == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, is_any_six ? 0 : 1);
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), each->ai_addrlen) != 0 ||
        ::listen(socket.get(), SOMAXCONN) != 0) {
      if (errno == EADDRINUSE) return errno;
      if (listening_.empty()) error = errno;
      continue;
    }
    socklen_t size = sizeof name;
    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name), &size);
    bound.insert(name_of(name).first);
    chosen = name_of(name).second;
    error = 0;
    listening_.push_back(std::move(socket));
  }
  port_ = chosen;
  return error;
}

// Blocks all signals in the thread, so that the program's threads receive them.
void Listener::start(ConnectionHandler hand_over) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this, give = std::move(hand_over)] { run(give); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Listener::stop() {
  if (!thread_.joinable()) return;
  is_stopping_ = true;
  wake();
  thread_.join();
}

void Listener::wake() const {
  constexpr std::uint64_t once = 1;
  static_cast<void>(!::write(bell_.get(), &once, sizeof once));
}

// Calls gRPC without the lock, because it may call back. If memory is short, the thread tries again.
void Listener::run(const ConnectionHandler& hand_over) {
  std::array<epoll_event, accepted_at_once> events;
  std::vector<int> admitted;
  admitted.reserve(accepted_at_once);
  bool is_anybody_here = false;
  while (!is_stopping_) {
    const int timeout = is_anybody_here ? static_cast<int>(between_looks.count()) : -1;
    const int number = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
    bool pauses = false;
    try {
      const std::lock_guard lock(mutex_);
      lacks_descriptors_ = false;
      for (int i = 0; i < number; ++i) {
        const epoll_event& each = events[static_cast<std::size_t>(i)];
        handle_event(each.data.fd, each.events);
      }
      connections_.drop_late();
      if (!connections_.admit(admitted)) make_room();
      is_anybody_here = !connections_.is_empty();
      pauses = lacks_descriptors_;
    } catch (const std::bad_alloc&) {
      pauses = true;
    }
    for (const int each : admitted) hand_over(each);
    admitted.clear();
    if (pauses) std::this_thread::sleep_for(until_room);
  }
}

void Listener::handle_event(int descriptor, std::uint32_t events) {
  if (descriptor == bell_.get()) {
    std::uint64_t rings = 0;
    static_cast<void>(!::read(descriptor, &rings, sizeof rings));
    return;
  }
  if (std::ranges::find(listening_, descriptor, &Socket::get) != listening_.end()) return accept_connection(descriptor);
  connections_.handle_event(descriptor, events);
}

// Never closes a listening socket: connections that cannot be accepted now stay in its queue.
void Listener::accept_connection(int listening) {
  for (std::size_t i = 0; i < accepted_at_once; ++i) {
    Socket socket(::accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() >= 0) {
      connections_.add(std::move(socket));
      continue;
    }
    const int error = errno;
    if (is_exhausted(error)) make_room();
    if (error != ECONNABORTED && error != EINTR) return;
  }
}

void Listener::make_room() {
  if (!raise_limit()) connections_.drop_one();
  lacks_descriptors_ = true;
}

void Listener::trust(std::string_view peer) {
  if (!connections_.serves_any()) return;
  const std::lock_guard lock(mutex_);
  if (connections_.trust(peer)) wake();  // A place is free for a waiting connection.
}

void Listener::count_unproven(std::string_view peer) {
  if (!connections_.serves_any()) return;
  const std::lock_guard lock(mutex_);
  connections_.count_unproven(peer);
}

}  // namespace lockstep::rpc::detail
