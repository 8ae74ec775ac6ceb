// SPDX-License-Identifier: Apache-2.0
// Implements the sockets on the calls of Linux; the kernel may lack memory for a while without ending a connection.
#include "collectives/tcp/socket.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>

#include "topology/base/error.hpp"
#include "topology/base/mapped.hpp"
#include "topology/base/text.hpp"
#include "topology/secret/secret.hpp"

namespace lockstep::tcp {
namespace {

constexpr int waiting_room = INT_MAX;  // callers not yet accepted: as many as the kernel allows

// Holds a socket address of any of the three kinds.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

SocketAddress inet_name_of(const ListeningAddress& place) {
  SocketAddress name;
  if (place.is_v6) {
    auto& six = reinterpret_cast<sockaddr_in6&>(name.storage);
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(place.port);
    std::memcpy(&six.sin6_addr, place.address.data(), sizeof six.sin6_addr);
    name.size = sizeof six;
  } else {
    auto& four = reinterpret_cast<sockaddr_in&>(name.storage);
    four.sin_family = AF_INET;
    four.sin_port = htons(place.port);
    std::memcpy(&four.sin_addr, place.address.data(), sizeof four.sin_addr);
    name.size = sizeof four;
  }
  return name;
}

// Starts the name with a zero byte, so no file has it.
SocketAddress unix_name_of(const ListeningAddress& place) {
  SocketAddress name;
  auto& unix_name = reinterpret_cast<sockaddr_un&>(name.storage);
  unix_name.sun_family = AF_UNIX;
  const std::string word = "lockstep-" + to_hexadecimal(place.name);
  std::memcpy(unix_name.sun_path + 1, word.data(), word.size());
  name.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + word.size());
  return name;
}

Descriptor make_socket(int family) {
  return made([family] { return ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
}

void set(const Descriptor& socket, int level, int option, int value) {
  ::setsockopt(socket.get(), level, option, &value, sizeof value);
}

Descriptor listen_by(SocketAddress& name, const std::string& where) {
  Descriptor socket = make_socket(name.family());
  if (!socket || ::bind(socket.get(), name.get(), name.size) != 0 || ::listen(socket.get(), waiting_room) != 0)
    throw system_error(text("listening at ", where), errno,
                       "check that the address is this host's, and the limit of open descriptors (ulimit -n)");
  return socket;
}

// Makes the kernel probe an idle connection every second. For long limits it probes less often, because it counts at
// most 120 probes.
void ask_for_answers(const Descriptor& socket, std::chrono::milliseconds silence) {
  constexpr int most = 120;
  const auto seconds = static_cast<int>(silence.count() / 1000);
  const int between = (seconds + most - 1) / most;
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, between);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, between);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, std::max(1, seconds / between - 1));
}

// True if the kernel may have memory or data later; such an error ends no connection.
bool is_for_later(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS || error == ENOMEM;
}

// Interprets a failure of read() or write().
template <class MayUse>
IoResult failed(int error, PageShortage& shortage, const MayUse& may_use) {
  if (error == EFAULT && shortage.goes_on(may_use)) return {};
  shortage.end();
  return is_for_later(error) ? IoResult{} : IoResult{0, true, error};
}

}  // namespace

void Descriptor::close() noexcept {
  return_to_children(number_);
  if (number_ >= 0) ::close(std::exchange(number_, -1));
}

void ListeningAddress::write(Writer& writer) const {
  writer.put(std::span<const std::byte>(address)).put(std::span<const std::byte>(name)).put(port).put(is_v6);
}

ListeningAddress ListeningAddress::read(Reader& reader) {
  ListeningAddress place;
  for (auto* const part : {&place.address, &place.name}) {
    const Bytes bytes = reader.get_bytes();
    if (bytes.size() != part->size()) throw Error(Code::bad_message, "an address of another length");
    std::copy(bytes.begin(), bytes.end(), part->begin());
  }
  place.port = reader.get<std::uint16_t>();
  place.is_v6 = reader.get<bool>();
  return place;
}

std::string to_text(const ListeningAddress& place) {
  std::array<char, INET6_ADDRSTRLEN> name{};
  ::inet_ntop(place.is_v6 ? AF_INET6 : AF_INET, place.address.data(), name.data(), name.size());
  return place.is_v6 ? text('[', name.data(), "]:", place.port) : text(name.data(), ':', place.port);
}

ListeningSockets listen_at(const std::string& address, bool everywhere) {
  ListeningSockets all;
  all.place.is_v6 = address.find(':') != std::string::npos;
  if (::inet_pton(all.place.is_v6 ? AF_INET6 : AF_INET, address.c_str(), all.place.address.data()) != 1)
    throw Error(Code::internal, text("\"", printable(address), "\" is no address to listen at"));
  fill_random(all.place.name);
  ListeningAddress at = all.place;
  if (everywhere) at.address = {};
  SocketAddress far = inet_name_of(at);
  all.inet = listen_by(far, everywhere ? "all addresses" : address);
  far.size = sizeof far.storage;
  if (::getsockname(all.inet.get(), far.get(), &far.size) != 0)
    throw system_error(text("finding the port at ", address), errno);
  all.place.port = ntohs(all.place.is_v6 ? reinterpret_cast<sockaddr_in6&>(far.storage).sin6_port
                                         : reinterpret_cast<sockaddr_in&>(far.storage).sin_port);
  SocketAddress unix_name = unix_name_of(all.place);
  all.unix_domain = listen_by(unix_name, "a name of its own");
  return all;
}

bool is_exhausted(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

std::optional<Descriptor> accept(const Descriptor& listener, int& error) {
  Descriptor socket = made([&] { return ::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
  error = socket || !is_exhausted(errno) ? 0 : errno;
  if (pollfd knocked{listener.get(), POLLIN, 0}; error != 0 && ::poll(&knocked, 1, 0) <= 0) error = 0;
  if (!socket) return std::nullopt;
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);  // without effect on sockets of this host
  return socket;
}

std::optional<Descriptor> connect(const ListeningAddress& place, bool is_local, int& error) {
  SocketAddress name = is_local ? unix_name_of(place) : inet_name_of(place);
  Descriptor socket = make_socket(name.family());
  error = socket ? 0 : errno;
  if (!socket) return std::nullopt;
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  if (::connect(socket.get(), name.get(), name.size) == 0 || errno == EINPROGRESS) return socket;
  error = errno;
  return std::nullopt;
}

int error_of(const Descriptor& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

bool is_connected(const Descriptor& socket) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  pollfd ended{socket.get(), POLLRDHUP, 0};
  return ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&name), &size) == 0 && ::poll(&ended, 1, 0) == 0;
}

// Also limits the wait until the call is accepted, because its first bytes may have arrived by then.
void limit_connecting(const Descriptor& socket, std::chrono::milliseconds silence) {
  ask_for_answers(socket, silence);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(silence.count()));
}

// Sets no limit for data under way: it would also count the time in which a late rank reads nothing.
void watch_host(const Descriptor& socket, std::chrono::milliseconds silence) {
  ask_for_answers(socket, silence);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
}

IoResult read(const Descriptor& socket, std::span<std::byte> into, PageShortage& shortage) {
  if (into.empty()) return {};
  const ssize_t bytes = ::recv(socket.get(), into.data(), into.size(), 0);
  if (bytes < 0) return failed(errno, shortage, [&] { return is_mapped(into.data(), into.size(), Access::write); });
  shortage.end();
  return {static_cast<std::size_t>(bytes), bytes == 0};
}

IoResult read(const Descriptor& socket, std::span<std::byte> into) {
  PageShortage shortage;
  return read(socket, into, shortage);
}

bool try_to_watch(const Descriptor& place, int number, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = number;
  return with_patience([&] { return ::epoll_ctl(place.get(), EPOLL_CTL_ADD, number, &event) == 0 || errno == EEXIST; });
}

void watch(const Descriptor& place, int number, std::uint32_t events) {
  if (try_to_watch(place, number, events)) return;
  const int error = errno;
  throw system_error("watching a connection (epoll_ctl)", error,
                     error == ENOSPC ? "raise the limit of watched descriptors (sysctl fs.epoll.max_user_watches)"
                                     : "check the memory limit of this job's control group");
}

IoResult write_at_once(const Descriptor& socket, std::span<const std::byte> from) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): the kernel only reads it
  iovec part{const_cast<std::byte*>(from.data()), from.size()};
  IoResult moved;
  with_patience([&] {
    errno = 0;
    moved = write(socket, {&part, 1});
    return moved.is_over || moved.bytes > 0;
  });
  return moved;
}

IoResult write(const Descriptor& socket, std::span<iovec> from) {
  PageShortage shortage;
  return write(socket, from, shortage);
}

IoResult write(const Descriptor& socket, std::span<iovec> from, PageShortage& shortage) {
  msghdr message{};
  message.msg_iov = from.data();
  message.msg_iovlen = from.size();
  const auto is_there = [](const iovec& part) { return is_mapped(part.iov_base, part.iov_len, Access::read); };
  const ssize_t bytes = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL);
  if (bytes < 0) return failed(errno, shortage, [&] { return std::ranges::all_of(from, is_there); });
  shortage.end();
  return {static_cast<std::size_t>(bytes)};
}

std::optional<HostAnswers> answers_of(const Descriptor& socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  constexpr int some = 2;  // probes; a live host answers each of them, also for a rank that reads nothing
  const bool are_awaited = (info.tcpi_unacked > 0 && info.tcpi_retransmits > 0) || info.tcpi_probes >= some;
  return HostAnswers{are_awaited,
                     std::chrono::milliseconds(std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv))};
}

bool has_unread(const Descriptor& socket) {
  std::byte one{};
  return ::recv(socket.get(), &one, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

}  // namespace lockstep::tcp
