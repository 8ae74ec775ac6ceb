// SPDX-License-Identifier: Apache-2.0
// Wraps sockets that never block: listening, connecting, reading and writing.
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "topology/base/bytes.hpp"
#include "topology/base/descriptor_limit.hpp"
#include "topology/base/forked.hpp"

struct iovec;

namespace lockstep::tcp {

// Owns a file descriptor, and closes it. Children made by fork() do not keep it. get() is -1 if there is none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) { keep_from_children(number); }
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  void close() noexcept;

 private:
  int number_ = -1;
};

// Repeats `has_done` until it returns true, while errno says that the kernel lacks memory. Returns false on any other
// error, or after 2 s.
template <class Act>
bool with_patience(const Act& has_done) {
  constexpr std::chrono::seconds longest{2};
  const auto end = std::chrono::steady_clock::now() + longest;
  while (!has_done()) {
    if ((errno != ENOMEM && errno != ENOBUFS) || std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Returns the descriptor that `make` opens. If the process has too many open, it raises the limit and tries once more.
// The result is empty, with errno, on failure.
template <class Make>
Descriptor made(Make make) {
  int number = -1;
  with_patience([&] { return (number = make()) >= 0; });
  Descriptor one(number);
  if (!one && errno == EMFILE) {
    raise_limit();  // or another thread just has
    one = Descriptor(make());
  }
  return one;
}

// Makes `place`, an epoll, report events of this descriptor; a second call for it changes nothing. Throws Error system.
void watch(const Descriptor& place, int number, std::uint32_t events);
// Does the same, but returns false, with errno, on failure.
bool try_to_watch(const Descriptor& place, int number, std::uint32_t events);

// Says where a process listens: at an address and port of its host, and at a name on that host that only the kernel
// knows.
struct ListeningAddress {
  std::array<std::byte, 16> address{};  // IPv4 uses the first four bytes
  std::array<std::byte, 16> name{};
  std::uint16_t port = 0;
  bool is_v6 = false;
  bool is_on_host_of(const ListeningAddress& other) const { return address == other.address && is_v6 == other.is_v6; }
  void write(Writer& writer) const;
  static ListeningAddress read(Reader& reader);
};
std::string to_text(const ListeningAddress& place);  // "10.0.0.1:4711"

// Holds both listening sockets of a process: `inet` for other hosts, and `unix_domain` for its own.
struct ListeningSockets {
  ListeningAddress place;
  Descriptor inet;
  Descriptor unix_domain;
};
// Listens at `address`, or with `everywhere` at all addresses, at a port that the kernel chooses. Throws Error system.
ListeningSockets listen_at(const std::string& address, bool everywhere);

// True if the kernel has no more descriptors, or no memory for them.
bool is_exhausted(int error);

// Accepts one connection. Returns nothing if nobody waits, or if a caller cannot be let in; then `error` is not 0.
std::optional<Descriptor> accept(const Descriptor& listener, int& error);

// Says how a read or a write ended.
struct IoResult {
  std::size_t bytes = 0;
  bool is_over = false;  // nothing more will come, or go
  int error = 0;         // the errno of the end; 0: the other side has closed
};

// Starts a connection; its socket can be written to once it stands or has failed. Returns nothing on failure, and sets
// `error` to the errno.
std::optional<Descriptor> connect(const ListeningAddress& place, bool is_local, int& error);
// Returns the error of a connection that was started; 0 if it stands.
int error_of(const Descriptor& socket);
// True if it stands, and the other side has not ended it.
bool is_connected(const Descriptor& socket);
// Limits the time until a connection stands.
void limit_connecting(const Descriptor& socket, std::chrono::milliseconds silence);
// Ends idle connections to a host that has been silent for so long.
void watch_host(const Descriptor& socket, std::chrono::milliseconds silence);

// Follows a time in which the kernel lacks memory for the pages of a buffer. It answers EFAULT then, as for a buffer
// that does not exist.
class PageShortage {
 public:
  // True if the operation that failed may be tried again: for 3 s, and only if the process may use the memory. Time in
  // which nobody tried does not count.
  template <class MayUse>
  bool goes_on(const MayUse& may_use) {
    constexpr std::chrono::seconds longest{3};
    constexpr std::chrono::seconds longest_pause{1};
    const auto now = std::chrono::steady_clock::now();
    const bool is_new = !since_ || now - tried_at_ > longest_pause;
    if (is_new && !may_use()) return false;
    if (is_new) since_ = now;
    tried_at_ = now;
    return now - *since_ <= longest;
  }
  void end() { since_.reset(); }
  bool is_on() const { return since_.has_value(); }

 private:
  std::optional<std::chrono::steady_clock::time_point> since_;
  std::chrono::steady_clock::time_point tried_at_;
};

// Reads without blocking. No bytes and no end mean that nothing has come yet, or that the kernel lacks memory for the
// buffer's pages. Without a `shortage` that may last for ever.
IoResult read(const Descriptor& socket, std::span<std::byte> into, PageShortage& shortage);
IoResult read(const Descriptor& socket, std::span<std::byte> into);
// Writes without blocking, under the same rule. No bytes and no end mean that the kernel has no room or no memory at
// the moment.
IoResult write(const Descriptor& socket, std::span<iovec> from, PageShortage& shortage);
IoResult write(const Descriptor& socket, std::span<iovec> from);
// Writes a few bytes before anything else. It waits up to 2 s if the kernel lacks memory.
IoResult write_at_once(const Descriptor& socket, std::span<const std::byte> from);
// Owns a connection that carries buffers of the caller. A lack of memory ends it after 3 s.
class StreamSocket {
 public:
  void open(Descriptor socket) { descriptor_ = std::move(socket); }
  Descriptor release() { return std::move(descriptor_); }
  void close() { descriptor_.close(); }
  const Descriptor& descriptor() const { return descriptor_; }
  explicit operator bool() const { return static_cast<bool>(descriptor_); }
  IoResult read(std::span<std::byte> into) { return tcp::read(descriptor_, into, reading_); }
  IoResult write(std::span<iovec> from) { return tcp::write(descriptor_, from, writing_); }
  // True if the kernel lacked memory at the last attempt.
  bool is_short() const { return reading_.is_on() || writing_.is_on(); }

 private:
  Descriptor descriptor_;
  PageShortage reading_;
  PageShortage writing_;
};

// Tells how the kernel of the other host answers on a connection. A host answers for its ranks, even if they are late:
// `last` is the time since anything came from it. `are_awaited` is true if data was resent, or probes were sent,
// without an answer so far.
struct HostAnswers {
  bool are_awaited = false;
  std::chrono::milliseconds last{0};
};
// Returns nothing if the connection is within this host.
std::optional<HostAnswers> answers_of(const Descriptor& socket);
// True if data waits that nobody has read.
bool has_unread(const Descriptor& socket);

}  // namespace lockstep::tcp
