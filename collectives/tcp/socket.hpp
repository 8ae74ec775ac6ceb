// SPDX-License-Identifier: Apache-2.0
// Sockets that never block: where a member listens, how another one gets there, and what is read and written.
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

// Children that come about by fork() have none of them.
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

// Until it has done what it should, or the kernel has lacked memory for too long.
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

// What `make` opens; once more with a higher limit where there were too many already.
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

// From now on `place` (epoll) tells of the events of what has this number; the same again is nothing new. Throws Error
// system where the kernel does not do it.
void watch(const Descriptor& place, int number, std::uint32_t events);
// Returns false, with errno, where the kernel does not do it.
bool try_to_watch(const Descriptor& place, int number, std::uint32_t events);

// Where a member listens: at an address and port of its host, and for those on the same host at a name that only the
// kernel knows.
struct ListeningAddress {
  std::array<std::byte, 16> address{};  // of IPv4 the first four
  std::array<std::byte, 16> name{};
  std::uint16_t port = 0;
  bool is_v6 = false;
  bool is_on_host_of(const ListeningAddress& other) const { return address == other.address && is_v6 == other.is_v6; }
  void write(Writer& writer) const;
  static ListeningAddress read(Reader& reader);
};
std::string to_text(const ListeningAddress& place);  // "10.0.0.1:4711"

// Both ends of one member. Throws Error system.
struct ListeningSockets {
  ListeningAddress place;
  Descriptor far;
  Descriptor near;
};
ListeningSockets listen_at(const std::string& address, bool everywhere);

// Whether the kernel has no more descriptors, or no memory for them.
bool is_exhausted(int error);

// Nothing: nobody has knocked, or, where `error` is not 0, nobody can be let in.
std::optional<Descriptor> accept(const Descriptor& listener, int& error);

// What became of a read or a write.
struct IoResult {
  std::size_t bytes = 0;
  bool is_over = false;  // nothing will come any more, or go
  int error = 0;         // why; 0: the other side has closed
};

// A connection is under way; its socket can be written to when it stands, or has failed. Nothing: `error` says why.
std::optional<Descriptor> connect(const ListeningAddress& place, bool near, int& error);
// 0 when it stands.
int error_of(const Descriptor& socket);
// True if it stands, and the other side has not ended it.
bool is_connected(const Descriptor& socket);
// How long until a connection stands.
void limit_connecting(const Descriptor& socket, std::chrono::milliseconds silence);
// How long a host may be silent, where nothing is under way, before its connections are over.
void watch_host(const Descriptor& socket, std::chrono::milliseconds silence);

IoResult read(const Descriptor& socket, std::span<std::byte> into);
// Nothing: the kernel has no room or no memory for it just now.
IoResult write(const Descriptor& socket, std::span<iovec> from);
// The little that is to go before anything else: where the kernel has no memory, as long as it lacks, but not for ever.
IoResult write_at_once(const Descriptor& socket, std::span<const std::byte> from);
// What the kernel knows of the host at the other end of a connection; nothing: it is this host.
struct HostAnswers {
  bool are_awaited = false;           // to what was sent there, also again, or asked
  std::chrono::milliseconds last{0};  // so long ago: an answer or anything else; a member that is late has a kernel too
};
std::optional<HostAnswers> answers_of(const Descriptor& socket);
// Whether something is there that nobody has read.
bool has_unread(const Descriptor& socket);

}  // namespace lockstep::tcp
