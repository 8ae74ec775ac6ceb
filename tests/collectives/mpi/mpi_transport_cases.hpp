// SPDX-License-Identifier: Apache-2.0
// What the tests of the transport over MPI share: patterns that name their sender, a ring, and an exchange that keeps
// what it logs.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/mpi/mpi_transport.hpp"
#include "collectives/mpi/transport.hpp"
#include "tests/support/mpi_test.hpp"
#include "topology/base/error.hpp"

namespace lockstep::test {

// One for each length of protocol: nothing, eager, rendezvous (from 4 KiB to 64 KiB on), several fragments of it.
inline const std::size_t sizes[] = {0, 1, 7, 64, 1000, 4096, 5000, 65536, std::size_t{1} << 20U, 3'000'000};

inline Bytes pattern(int from, int to, std::size_t size, int seed = 0) {
  Bytes bytes(size);
  auto next = static_cast<unsigned>(from * 31 + to * 17 + seed * 101 + 1);
  for (std::byte& each : bytes) each = static_cast<std::byte>((next = next * 1664525U + 1013904223U) >> 24U);
  return bytes;
}

inline void finish(Transport& transport, int lane) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  while (!transport.done(lane)) {
    if (std::chrono::steady_clock::now() > end) throw Error(Code::stall, text("lane ", lane, " is not done"));
    std::this_thread::yield();
  }
}

inline std::string ending(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

inline int left_of(const Transport& transport) { return (transport.rank() + transport.size() - 1) % transport.size(); }
inline int right_of(const Transport& transport) { return (transport.rank() + 1) % transport.size(); }

// Everybody to the right, in one round; the neighbour of one who is alone is itself.
inline void ring(Transport& transport, RoundTag round_tag, std::size_t size, int seed) {
  const int me = transport.rank();
  const Bytes mine = pattern(me, right_of(transport), size, seed);
  Bytes theirs(size);
  const SendDescriptor out{right_of(transport), mine.data(), size};
  const ReceiveDescriptor in{left_of(transport), theirs.data(), size};
  transport.post(round_tag, {&out, 1}, {&in, 1});
  finish(transport, round_tag.lane);
  ASSERT_EQ(theirs, pattern(left_of(transport), me, size, seed)) << size << " bytes";
}

// An exchange like the world's whose log lines are kept.
struct Loud {
  std::shared_ptr<std::vector<std::string>> lines = std::make_shared<std::vector<std::string>>();
  std::unique_ptr<Exchange> place = world().duplicate();  // keeps the channel
  MpiExchange exchange = make();

 private:
  MpiExchange make() const {
    auto& like = dynamic_cast<MpiExchange&>(*place);
    like.mark_failed();  // its channel is cleared before anybody else gets it
    const auto keep = [lines = lines](LogLevel, std::string_view line) { lines->emplace_back(line); };
    return MpiExchange(like.wire(), {like.channel_block().channel, like.generation()}, like.members(), like.rank(),
                       like.wait_limits(), Log(LogLevel::warn, keep));
  }
};

}  // namespace lockstep::test
