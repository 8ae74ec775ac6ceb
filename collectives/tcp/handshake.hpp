// SPDX-License-Identifier: Apache-2.0
// Proves to both ends of a new connection that they have the same key and are members of one communicator. An
// eavesdropper cannot reuse a proof, because both sides choose a nonce. Three messages pass:
//
// 1. The called side sends a challenge.
// 2. The caller names itself, the wanted rank, the communicator and the channel. It adds a challenge of its own and a
//    proof for the first one.
// 3. The called side accepts or refuses, with a proof for the second challenge.
#pragma once

#include <array>
#include <compare>
#include <memory>

#include "collectives/tcp/socket.hpp"
#include "topology/secret/secret.hpp"

namespace lockstep::tcp {

// Holds random bytes that make a proof or a communicator unique.
using HandshakeNonce = std::array<std::byte, 16>;

// Names a member: a rank of the communicator with this nonce.
struct MemberId {
  HandshakeNonce communicator{};
  std::uint32_t rank = 0;
  auto operator<=>(const MemberId&) const = default;  // NOLINT(modernize-use-nullptr): of the comparison itself
};

// Says how far a handshake is. `introduced` means that the called side knows its caller and has to answer.
enum class HandshakeState : std::uint8_t { under_way, introduced, taken, refused, failed };

// Runs one handshake on a socket that it owns, without blocking. One thread at a time may use it.
class Handshake {
 public:
  // Starts a handshake as the side that connects: `from` calls `to_rank` on this channel.
  static Handshake calling(Descriptor socket, std::shared_ptr<const Secret> key, const MemberId& from,
                           std::uint32_t to_rank, std::uint32_t channel);
  // Starts a handshake as the side that accepted the connection.
  static Handshake called(Descriptor socket, std::shared_ptr<const Secret> key);

  // Sends and receives as far as it goes without blocking, and returns the new state.
  HandshakeState advance();
  // Accepts or refuses the caller, in state `introduced`; advance() sends the answer.
  void answer(bool is_accepted);

  HandshakeState state() const { return state_; }
  // Returns the errno of a failure, or 0 if the other side has closed the connection. EPROTO means a wrong proof or
  // another protocol.
  int error() const { return error_; }
  // Describe the connection, once it is introduced: the caller, the called member, and the channel.
  const MemberId& from() const { return from_; }
  MemberId to() const { return {from_.communicator, to_rank_}; }
  std::uint32_t channel() const { return channel_; }
  const Descriptor& socket() const { return socket_; }
  // Gives the socket away; the handshake is over then.
  Descriptor take() { return std::move(socket_); }

 private:
  Handshake(Descriptor socket, std::shared_ptr<const Secret> key, bool calls)
      : socket_(std::move(socket)), key_(std::move(key)), calls_(calls) {}
  // True if all bytes are sent.
  bool say();
  // True if so many bytes have come. It reads no more than that, because the rest belongs to the channel.
  bool hear(std::size_t bytes);
  void say_proof();
  void hear_proof();
  void hear_verdict();
  Mac proof(std::string_view of_what, std::uint32_t verdict) const;
  void fail(int error);

  Descriptor socket_;
  std::shared_ptr<const Secret> key_;
  bool calls_;
  HandshakeState state_ = HandshakeState::under_way;
  MemberId from_;
  std::uint32_t to_rank_ = 0;
  std::uint32_t channel_ = 0;
  HandshakeNonce of_called_{};
  HandshakeNonce of_caller_{};
  Bytes saying_;
  std::size_t said_ = 0;
  Bytes heard_;
  bool has_met_ = false;  // the first half is over
  bool takes_ = false;
  int error_ = 0;
};

}  // namespace lockstep::tcp
