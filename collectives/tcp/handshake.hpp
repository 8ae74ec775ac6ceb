// SPDX-License-Identifier: Apache-2.0
// Before anything is said on a connection, both sides prove to each other that they have the key and are members of
// one communicator; nobody who has listened to that can say it again elsewhere:
//
//   who was called      a challenge
//   who called          who it is, for whom, in which communicator and channel, a challenge of its own, and a proof
//                       for the first one
//   who was called      whether it takes the connection, and a proof for the second one
#pragma once

#include <array>
#include <compare>
#include <memory>

#include "collectives/tcp/socket.hpp"
#include "topology/secret/secret.hpp"

namespace lockstep::tcp {

using HandshakeNonce = std::array<std::byte, 16>;

// Who is meant: a member of a communicator, each of which has a nonce of its own.
struct MemberId {
  HandshakeNonce meeting{};
  std::uint32_t rank = 0;
  auto operator<=>(const MemberId&) const = default;  // NOLINT(modernize-use-nullptr): of the comparison itself
};

// introduced: the called side knows its caller, and has to answer.
enum class HandshakeState : std::uint8_t { under_way, introduced, taken, refused, failed };

class Handshake {
 public:
  static Handshake calling(Descriptor socket, std::shared_ptr<const Secret> key, const MemberId& from,
                           std::uint32_t to_rank, std::uint32_t channel);
  static Handshake called(Descriptor socket, std::shared_ptr<const Secret> key);

  // As far as it goes.
  HandshakeState advance();
  void answer(bool takes);

  HandshakeState state() const { return state_; }
  // Why it failed: of the system, or 0 where the other side has closed.
  int error() const { return error_; }
  const MemberId& from() const { return from_; }
  MemberId to() const { return {from_.meeting, to_rank_}; }
  std::uint32_t channel() const { return channel_; }
  const Descriptor& socket() const { return socket_; }
  Descriptor take() { return std::move(socket_); }

 private:
  Handshake(Descriptor socket, std::shared_ptr<const Secret> key, bool calls)
      : socket_(std::move(socket)), key_(std::move(key)), calls_(calls) {}
  bool say();
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
