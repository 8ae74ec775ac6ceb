// SPDX-License-Identifier: Apache-2.0
// Accepts connections, and limits those that have not proven the key.
#include "runtime/rpc/listener.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>  // It has more of tcp_info than netinet/tcp.h.
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <set>

#include "topology/base/descriptor_limit.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::rpc::detail {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Limit untrusted connections. They are guesses; tests/runtime/rpc/strangers_test.cpp shows that clients connect under
// attack.
constexpr std::size_t accepted_at_once = 64;
constexpr std::size_t served_at_once = 32;  // Counts untrusted connections that gRPC serves.
// A client asks for the nonce once, and again for each call under way if the server was restarted.
constexpr int unproven_calls_at_most = 4 * calls_at_once;
// Limits the bytes of an untrusted connection, because gRPC keeps several times the bytes of headers and control
// frames without a limit. Until one call has proven the key, a client sends the headers of its first calls and a
// window (64 KiB) for each.
constexpr std::uint64_t unproven_bytes_at_most = 512U << 10U;
// Sets the kernel's receive buffers, in bytes. While gRPC finds more to read, it does nothing else. With 16 KiB, calls
// that are begun and reset took 299 MB, and with 8 KiB 176 MB (20 connections, Linux 6.18). With 2 KiB large calls
// stall for seconds.
constexpr int unproven_buffer = 8 << 10;
constexpr int proven_buffer = 4 << 20;
constexpr seconds silent_at_most{10};
constexpr seconds unproven_at_most{60};
// After this time another untrusted connection may replace one that has proven nothing.
constexpr seconds undisturbed{1};
constexpr milliseconds between_looks{100};
constexpr milliseconds until_room{10};

// Returns an eighth of all descriptors, within limits. A connection that gRPC serves takes two.
std::size_t most_strangers() { return std::clamp<std::size_t>(descriptor_limit() / 8, 8, 8192); }

bool is_exhausted(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

void set(int socket, int level, int option, int value) { ::setsockopt(socket, level, option, &value, sizeof value); }

// Returns the number of bytes that have arrived on a connection.
std::uint64_t received_by(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_bytes_received : 0;
}

// Lets the kernel choose the receive buffer's size again.
void give_room(int socket) {
  set(socket, SOL_SOCKET, SO_RCVBUF, proven_buffer);
  set(socket, IPPROTO_TCP, TCP_WINDOW_CLAMP, proven_buffer);  // The window has followed the small buffer.
#ifdef SO_BUF_LOCK
  set(socket, SOL_SOCKET, SO_BUF_LOCK, 0);  // This exists since Linux 5.14.
#endif
}

// Returns the address as text, without an IPv6 scope, and the port.
std::pair<std::string, std::uint16_t> name_of(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> host{};
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &four.sin_addr, host.data(), host.size());
    return {host.data(), ntohs(four.sin_port)};
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  constexpr std::size_t of_prefix = 12;  // gRPC names an IPv4 address in IPv6 form as IPv4.
  if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
    ::inet_ntop(AF_INET, six.sin6_addr.s6_addr + of_prefix, host.data(), host.size());
  else
    ::inet_ntop(AF_INET6, &six.sin6_addr, host.data(), host.size());
  return {host.data(), ntohs(six.sin6_port)};
}

}  // namespace

Listener::Listener(const std::string& address)
    : door_(::epoll_create1(EPOLL_CLOEXEC)), bell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  const std::size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string port = address.substr(colon + 1);
  constexpr int attempts = 16;  // A port that is free at one address may be taken at the next.
  int error = EADDRINUSE;
  for (int i = 0; i < (port == "0" ? attempts : 1) && error == EADDRINUSE; ++i) error = bind_all(host, port);
  if (error != 0 || door_.get() < 0 || bell_.get() < 0)
    throw Error(
        Code::system,
        text("no server can listen on ", printable(address), ": ",
             error == EADDRINUSE || error == EADDRNOTAVAIL ? "it is in use, or no address of this machine"
                                                           : std::strerror(error != 0 ? error : EMFILE)),
        "take a free port of this machine, or port 0; in a cluster, check that no two tasks have the same index");
  for (const Socket& each : listening_) watch(each.get(), EPOLLIN, EPOLL_CTL_ADD);
  watch(bell_.get(), EPOLLIN, EPOLL_CTL_ADD);
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
    set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // Connections of an earlier server may still be in TIME_WAIT.
    const bool is_any_six = name.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&of_six.sin6_addr);
    if (name.ss_family == AF_INET6) set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, is_any_six ? 0 : 1);
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

bool Listener::watch(int descriptor, std::uint32_t events, int operation) const {
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  return ::epoll_ctl(door_.get(), operation, descriptor, &event) == 0;
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
  admitted.reserve(served_at_once);
  bool is_anybody_here = false;
  while (!is_stopping_) {
    const int timeout = is_anybody_here ? static_cast<int>(between_looks.count()) : -1;
    const int number = ::epoll_wait(door_.get(), events.data(), static_cast<int>(events.size()), timeout);
    bool pauses = false;
    try {
      const std::lock_guard lock(mutex_);
      lacks_descriptors_ = false;
      for (int i = 0; i < number; ++i) {
        const epoll_event& each = events[static_cast<std::size_t>(i)];
        look_at(each.data.fd, each.events);
      }
      drop_late();
      admit(admitted);
      is_anybody_here = !silent_.empty() || !waiting_.empty() || !speaking_.empty();
      pauses = lacks_descriptors_;
    } catch (const std::bad_alloc&) {
      pauses = true;
    }
    for (const int each : admitted) hand_over(each);
    admitted.clear();
    if (pauses) std::this_thread::sleep_for(until_room);
  }
}

void Listener::look_at(int descriptor, std::uint32_t events) {
  if (descriptor == bell_.get()) {
    std::uint64_t rings = 0;
    static_cast<void>(!::read(descriptor, &rings, sizeof rings));
    return;
  }
  if (std::ranges::find(listening_, descriptor, &Socket::get) != listening_.end()) return let_in(descriptor);
  if (const auto found = connections_.find(descriptor); found != connections_.end())
    check_untrusted(found->second, events);
}

// Never closes a listening socket: connections that cannot be accepted now stay in its queue.
void Listener::let_in(int listening) {
  for (std::size_t i = 0; i < accepted_at_once; ++i) {
    Socket socket(::accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() >= 0) {
      add(std::move(socket));
      continue;
    }
    const int error = errno;
    if (is_exhausted(error)) make_room();
    if (error != ECONNABORTED && error != EINTR) return;
  }
}

void Listener::add(Socket socket) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  const int descriptor = socket.get();
  set(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set(descriptor, SOL_SOCKET, SO_RCVBUF, unproven_buffer);
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&name), &size) != 0) return;
  const auto [host, port] = name_of(name);
  if (!watch(descriptor, EPOLLIN | EPOLLRDHUP, EPOLL_CTL_ADD)) return;
  silent_.push_back({std::move(socket), host, text(':', port), Clock::now()});
  connections_[descriptor] = {&silent_, std::prev(silent_.end())};
  if (silent_.size() + waiting_.size() + speaking_.size() > most_strangers()) drop_one();
}

void Listener::check_untrusted(const ConnectionEntry& entry, std::uint32_t events) {
  const auto [where, which] = entry;
  if (where != &silent_) {
    if (where == &speaking_ && says_too_much(*which)) return expel(which);
    if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) drop(*where, which);
    return;
  }
  char first = 0;
  const ssize_t sent = ::recv(which->socket.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (sent < 0 && errno == EAGAIN) return;  // The event belongs to an earlier connection with the same descriptor.
  if (sent <= 0) return drop(silent_, which);
  const int descriptor = which->socket.get();
  watch(descriptor, EPOLLRDHUP, EPOLL_CTL_MOD);
  which->since = Clock::now();
  waiting_.splice(waiting_.end(), silent_, which);
  connections_[descriptor].where = &waiting_;
}

// Admits the newest connection first. Clients prove the key within milliseconds, and under attack older ones may have
// gone.
void Listener::admit(std::vector<int>& admitted) {
  const std::size_t most = std::min(served_at_once, most_strangers());
  while (!expelled_.empty() && Clock::now() - expelled_.front() > undisturbed) expelled_.pop_front();
  while (!waiting_.empty()) {
    if (speaking_.size() + expelled_.size() >= most) {
      if (speaking_.empty() || Clock::now() - speaking_.front().since < undisturbed) return;
      drop(speaking_, speaking_.begin());
    }
    const auto newest = std::prev(waiting_.end());
    const int descriptor = newest->socket.get();
    const int duplicate = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (duplicate < 0) return make_room();
    admitted.push_back(duplicate);
    newest->since = Clock::now();
    speaking_.splice(speaking_.end(), waiting_, newest);
    connections_[descriptor].where = &speaking_;
    watch(descriptor, EPOLLIN | EPOLLRDHUP | EPOLLET, EPOLL_CTL_MOD);  // Reports whenever bytes arrive.
    served_ = speaking_.size();
  }
}

// Closes the descriptor here, because gRPC's duplicate would keep it in `door_`.
void Listener::forget(UntrustedConnections& from, UntrustedConnections::iterator which) {
  watch(which->socket.get(), 0, EPOLL_CTL_DEL);
  connections_.erase(which->socket.get());
  from.erase(which);
  served_ = speaking_.size();
}

// Ends a connection. gRPC closes its duplicate when it notices.
void Listener::drop(UntrustedConnections& from, UntrustedConnections::iterator which) {
  if (&from == &speaking_) ::shutdown(which->socket.get(), SHUT_RDWR);
  forget(from, which);
}

bool Listener::says_too_much(const UntrustedConnection& one) {
  return received_by(one.socket.get()) > unproven_bytes_at_most;
}

// Keeps the place taken for a while, since gRPC still works on the bytes that it was sent.
void Listener::expel(UntrustedConnections::iterator which) {
  expelled_.push_back(Clock::now());
  drop(speaking_, which);
}

// Drops silent connections first, since clients send at once, but spares new ones.
bool Listener::drop_one() {
  const auto now = Clock::now();
  for (UntrustedConnections* const each : {&silent_, &waiting_, &speaking_}) {
    if (each->empty() || (each != &waiting_ && now - each->front().since < undisturbed)) continue;
    drop(*each, each->begin());
    return true;
  }
  if (silent_.empty()) return false;
  drop(silent_, silent_.begin());
  return true;
}

void Listener::drop_late() {
  const auto now = Clock::now();
  for (UntrustedConnections* const each : {&silent_, &waiting_, &speaking_}) {
    const auto longest = each == &silent_ ? silent_at_most : unproven_at_most;
    while (!each->empty() && now - each->front().since > longest) drop(*each, each->begin());
  }
  for (auto each = speaking_.begin(); each != speaking_.end();) {
    const auto one = each++;
    if (says_too_much(*one)) expel(one);  // gRPC may read faster than events reach this thread.
  }
}

void Listener::make_room() {
  if (!raise_limit()) drop_one();
  lacks_descriptors_ = true;
}

// True for the names that gRPC writes: "ipv4:10.0.0.1:4711" and "ipv6:%5Bfe80::1%252%5D:4711".
bool Listener::UntrustedConnection::is_called(std::string_view peer) const {
  if (!peer.ends_with(port)) return false;
  for (const auto& [before, after] : {std::pair<std::string_view, char>("ipv4:", ':'), {"ipv6:%5B", '%'}}) {
    if (!peer.starts_with(before)) continue;
    const std::string_view rest = peer.substr(before.size());
    return rest.starts_with(host) && rest.size() > host.size() && rest[host.size()] == after;
  }
  return false;
}

Listener::UntrustedConnections::iterator Listener::find(std::string_view peer) {
  return std::ranges::find_if(speaking_, [peer](const UntrustedConnection& each) { return each.is_called(peer); });
}

void Listener::trust(std::string_view peer) {
  if (served_ == 0) return;
  const std::lock_guard lock(mutex_);
  const auto found = find(peer);
  if (found == speaking_.end()) return;
  give_room(found->socket.get());
  forget(speaking_, found);
  if (!waiting_.empty()) wake();  // A place is free for a waiting connection.
}

void Listener::count_unproven(std::string_view peer) {
  if (served_ == 0) return;
  const std::lock_guard lock(mutex_);
  const auto found = find(peer);
  if (found == speaking_.end()) return;
  if (++found->unproven_calls > unproven_calls_at_most) expel(found);
}

}  // namespace lockstep::rpc::detail
