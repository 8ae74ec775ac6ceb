// SPDX-License-Identifier: Apache-2.0
// What the tests of the transport over sockets share: connections whose bytes go on in pieces of any size, a key,
// member ids.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <memory>
#include <random>
#include <stdexcept>
#include <utility>

#include "collectives/tcp/acceptor.hpp"
#include "collectives/tcp/handshake.hpp"

namespace lockstep::tcp {

struct Ends {
  Descriptor one;
  Descriptor other;
};

inline Ends joined() {
  std::array<int, 2> both{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, both.data()) != 0) throw std::runtime_error("no sockets");
  return {Descriptor(both[0]), Descriptor(both[1])};
}

inline Bytes all_of(const Descriptor& socket) {
  Bytes all;
  std::array<std::byte, 4096> part;
  for (IoResult moved = read(socket, part); moved.bytes > 0; moved = read(socket, part))
    all.insert(all.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(moved.bytes));
  return all;
}

inline void put(const Descriptor& socket, std::span<const std::byte> bytes) {
  Bytes own(bytes.begin(), bytes.end());
  iovec part{own.data(), own.size()};
  ASSERT_EQ(write(socket, {&part, 1}).bytes, own.size());
}

// Two connections, between which bytes go on in pieces of any size.
class Between {
 public:
  explicit Between(unsigned seed) : random_(seed) {
    Ends a = joined();
    Ends b = joined();
    one = std::move(a.one);
    other = std::move(b.other);
    of_one_ = std::move(a.other);
    of_other_ = std::move(b.one);
  }
  void move() {
    pass(of_one_, of_other_);
    pass(of_other_, of_one_);
  }
  Descriptor one;
  Descriptor other;

 private:
  void pass(const Descriptor& from, const Descriptor& to) {
    std::array<std::byte, 70'000> part;
    constexpr std::array<std::size_t, 6> sizes = {1, 3, 16, 100, 4097, 70'000};
    const std::size_t most = sizes.at(random_() % sizes.size());
    IoResult moved = read(from, std::span(part).first(most));
    for (std::size_t gone = 0; gone < moved.bytes;) {
      iovec rest{part.data() + gone, moved.bytes - gone};
      const IoResult sent = write(to, {&rest, 1});
      if (sent.is_over) return;
      gone += sent.bytes;
    }
  }
  std::mt19937 random_;
  Descriptor of_one_;
  Descriptor of_other_;
};

inline std::shared_ptr<const Secret> key(int which = 7) {
  return std::make_shared<const Secret>(Bytes(32, static_cast<std::byte>(which)), "a test");
}

inline MemberId member_id(std::uint32_t rank, int communicator = 1) {
  MemberId one;
  one.communicator.fill(static_cast<std::byte>(communicator));
  one.rank = rank;
  return one;
}

}  // namespace lockstep::tcp
