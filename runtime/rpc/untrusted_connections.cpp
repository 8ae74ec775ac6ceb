// SPDX-License-Identifier: Apache-2.0
// Limits connections that have not proven the key.
#include "runtime/rpc/untrusted_connections.hpp"

#include <fcntl.h>
#include <linux/tcp.h>  // It has more of tcp_info than netinet/tcp.h.
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "topology/base/descriptor_limit.hpp"
#include "topology/base/text.hpp"

namespace lockstep::rpc::detail {
namespace {

using std::chrono::seconds;

// Limit untrusted connections. They are guesses; tests/runtime/rpc/strangers_test.cpp shows that clients connect under
// attack.
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

// Returns an eighth of all descriptors, within limits. A connection that gRPC serves takes two.
std::size_t most_strangers() { return std::clamp<std::size_t>(descriptor_limit() / 8, 8, 8192); }

// Returns the number of bytes that have arrived on a connection.
std::uint64_t received_by(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_bytes_received : 0;
}

// Lets the kernel choose the receive buffer's size again.
void give_room(int socket) {
  set_option(socket, SOL_SOCKET, SO_RCVBUF, proven_buffer);
  set_option(socket, IPPROTO_TCP, TCP_WINDOW_CLAMP, proven_buffer);  // The window has followed the small buffer.
#ifdef SO_BUF_LOCK
  set_option(socket, SOL_SOCKET, SO_BUF_LOCK, 0);  // This exists since Linux 5.14.
#endif
}

}  // namespace

void UntrustedConnections::add(Socket socket) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  const int descriptor = socket.get();
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_RCVBUF, unproven_buffer);
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&name), &size) != 0) return;
  const auto [host, port] = name_of(name);
  if (!epoll_.watch(descriptor, EPOLLIN | EPOLLRDHUP, EPOLL_CTL_ADD)) return;
  silent_.push_back({std::move(socket), host, text(':', port), Clock::now()});
  connections_[descriptor] = {&silent_, std::prev(silent_.end())};
  if (silent_.size() + waiting_.size() + speaking_.size() > most_strangers()) drop_one();
}

void UntrustedConnections::handle_event(int descriptor, std::uint32_t events) {
  if (const auto found = connections_.find(descriptor); found != connections_.end()) check(found->second, events);
}

void UntrustedConnections::check(const ConnectionEntry& entry, std::uint32_t events) {
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
  epoll_.watch(descriptor, EPOLLRDHUP, EPOLL_CTL_MOD);
  which->since = Clock::now();
  waiting_.splice(waiting_.end(), silent_, which);
  connections_[descriptor].where = &waiting_;
}

// Admits the newest connection first. Clients prove the key within milliseconds, and under attack older ones may have
// gone.
bool UntrustedConnections::admit(std::vector<int>& admitted) {
  const std::size_t most = std::min(served_at_once, most_strangers());
  while (!expelled_.empty() && Clock::now() - expelled_.front() > undisturbed) expelled_.pop_front();
  while (!waiting_.empty()) {
    if (speaking_.size() + expelled_.size() >= most) {
      if (speaking_.empty() || Clock::now() - speaking_.front().since < undisturbed) return true;
      drop(speaking_, speaking_.begin());
    }
    const auto newest = std::prev(waiting_.end());
    const int descriptor = newest->socket.get();
    const int duplicate = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (duplicate < 0) return false;
    admitted.push_back(duplicate);
    newest->since = Clock::now();
    speaking_.splice(speaking_.end(), waiting_, newest);
    connections_[descriptor].where = &speaking_;
    epoll_.watch(descriptor, EPOLLIN | EPOLLRDHUP | EPOLLET, EPOLL_CTL_MOD);  // Reports whenever bytes arrive.
    served_ = speaking_.size();
  }
  return true;
}

// Closes the descriptor here, because gRPC's duplicate would keep it in `epoll_`.
void UntrustedConnections::forget(ConnectionList& from, ConnectionList::iterator which) {
  epoll_.watch(which->socket.get(), 0, EPOLL_CTL_DEL);
  connections_.erase(which->socket.get());
  from.erase(which);
  served_ = speaking_.size();
}

// Ends a connection. gRPC closes its duplicate when it notices.
void UntrustedConnections::drop(ConnectionList& from, ConnectionList::iterator which) {
  if (&from == &speaking_) ::shutdown(which->socket.get(), SHUT_RDWR);
  forget(from, which);
}

bool UntrustedConnections::says_too_much(const UntrustedConnection& one) {
  return received_by(one.socket.get()) > unproven_bytes_at_most;
}

// Keeps the place taken for a while, since gRPC still works on the bytes that it was sent.
void UntrustedConnections::expel(ConnectionList::iterator which) {
  expelled_.push_back(Clock::now());
  drop(speaking_, which);
}

// Drops silent connections first, since clients send at once, but spares new ones.
void UntrustedConnections::drop_one() {
  const auto now = Clock::now();
  for (ConnectionList* const each : {&silent_, &waiting_, &speaking_}) {
    if (each->empty() || (each != &waiting_ && now - each->front().since < undisturbed)) continue;
    return drop(*each, each->begin());
  }
  if (!silent_.empty()) drop(silent_, silent_.begin());
}

void UntrustedConnections::drop_late() {
  const auto now = Clock::now();
  for (ConnectionList* const each : {&silent_, &waiting_, &speaking_}) {
    const auto longest = each == &silent_ ? silent_at_most : unproven_at_most;
    while (!each->empty() && now - each->front().since > longest) drop(*each, each->begin());
  }
  for (auto each = speaking_.begin(); each != speaking_.end();) {
    const auto one = each++;
    if (says_too_much(*one)) expel(one);  // gRPC may read faster than events reach this thread.
  }
}

// True for the names that gRPC writes: "ipv4:10.0.0.1:4711" and "ipv6:%5Bfe80::1%252%5D:4711".
bool UntrustedConnections::UntrustedConnection::is_called(std::string_view peer) const {
  if (!peer.ends_with(port)) return false;
  for (const auto& [before, after] : {std::pair<std::string_view, char>("ipv4:", ':'), {"ipv6:%5B", '%'}}) {
    if (!peer.starts_with(before)) continue;
    const std::string_view rest = peer.substr(before.size());
    return rest.starts_with(host) && rest.size() > host.size() && rest[host.size()] == after;
  }
  return false;
}

UntrustedConnections::ConnectionList::iterator UntrustedConnections::find(std::string_view peer) {
  return std::ranges::find_if(speaking_, [peer](const UntrustedConnection& each) { return each.is_called(peer); });
}

bool UntrustedConnections::trust(std::string_view peer) {
  const auto found = find(peer);
  if (found == speaking_.end()) return false;
  give_room(found->socket.get());
  forget(speaking_, found);
  return !waiting_.empty();
}

void UntrustedConnections::count_unproven(std::string_view peer) {
  const auto found = find(peer);
  if (found == speaking_.end()) return;
  if (++found->unproven_calls > unproven_calls_at_most) expel(found);
}

}  // namespace lockstep::rpc::detail
