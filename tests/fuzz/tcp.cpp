// SPDX-License-Identifier: Apache-2.0
// What comes on a connection between members: any bytes end it, or wait for more; none is believed without proof, and
// nothing is written beyond what is wanted. The first byte says who reads, the second how the rest is cut.
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "collectives/tcp/control_stream.hpp"
#include "collectives/tcp/handshake.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::tcp;

std::array<Descriptor, 2> joined() {
  std::array<int, 2> both{};
  fuzz::require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, both.data()) == 0);
  return {Descriptor(both[0]), Descriptor(both[1])};
}

// Says it in pieces, and looks after each; then ends.
template <class Look>
void say(Descriptor wire, std::string_view bytes, std::size_t piece, const Look& look) {
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
    const std::string_view part = bytes.substr(0, piece);
    std::vector<char> own(part.begin(), part.end());
    iovec iov{own.data(), own.size()};
    write(wire, {&iov, 1});
    look();
  }
  wire.close();
  look();
}

void shake(bool calls, std::string_view bytes, std::size_t piece) {
  const auto key = std::make_shared<const Secret>(Bytes(32, std::byte{7}), "a fuzzer");
  auto [mine, wire] = joined();
  auto one = calls ? Handshake::calling(std::move(mine), key, {}, 1, 2) : Handshake::called(std::move(mine), key);
  say(std::move(wire), bytes, piece, [&] {
    const auto state = one.advance();
    fuzz::require(state == HandshakeState::under_way || state == HandshakeState::failed);
  });
  fuzz::require(one.advance() == HandshakeState::failed);
}

// Between bytes that nobody may touch.
struct Wanted {
  std::array<std::byte, 64> memory{};
  PendingCounts left;
  std::byte* into() { return memory.data() + 16; }
  static constexpr std::size_t bytes = 32;
  bool is_whole() const {
    const auto is_zero = [](std::byte each) { return each == std::byte{0}; };
    return std::all_of(memory.begin(), memory.begin() + 16, is_zero) &&
           std::all_of(memory.begin() + 48, memory.end(), is_zero);
  }
};

void read_lane(std::string_view bytes, std::size_t piece) {
  auto [mine, wire] = joined();
  LaneStream lane;
  lane.open(std::move(mine));
  std::array<Wanted, 3> wanted;
  for (Wanted& each : wanted) {
    each.left.receives = 1;
    lane.post_receive({1, each.into(), Wanted::bytes, &each.left});
  }
  std::array<std::byte, 40> window{};
  say(std::move(wire), bytes, piece, [&] { lane.receive(window); });
  for (const Wanted& each : wanted) fuzz::require(each.is_whole());
}

void read_control(std::string_view bytes, std::size_t piece) {
  auto [mine, wire] = joined();
  ControlStream stream;
  stream.open(std::move(mine));
  std::array<Wanted, 3> wanted;
  std::uint64_t call_tag = 0;
  for (Wanted& each : wanted) {
    each.left.receives = 1;
    stream.post_receive({call_tag++, each.into(), Wanted::bytes, &each.left});
  }
  std::vector<Bytes> words;
  bool is_over = false;
  say(std::move(wire), bytes, piece, [&] {
    if (is_over) return;
    is_over = stream.receive(words).is_over || stream.flush().is_over;
  });
  for (const Wanted& each : wanted) fuzz::require(each.is_whole());
  const std::size_t said = std::accumulate(words.begin(), words.end(), std::size_t{0},
                                           [](std::size_t all, const Bytes& each) { return all + each.size(); });
  fuzz::require(said <= bytes.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::answers_or_refuses(data, size, [](std::string_view all) {
    if (all.size() < 2) return;
    constexpr std::array<std::size_t, 4> pieces = {1, 7, 100, 1U << 20U};
    const auto how = static_cast<unsigned char>(all[0]);
    const std::size_t piece = pieces.at(static_cast<unsigned char>(all[1]) % pieces.size());
    const std::string_view rest = all.substr(2);
    if (how % 4 == 0) shake(false, rest, piece);
    if (how % 4 == 1) shake(true, rest, piece);
    if (how % 4 == 2) read_lane(rest, piece);
    if (how % 4 == 3) read_control(rest, piece);
  });
}
