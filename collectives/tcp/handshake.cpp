// SPDX-License-Identifier: Apache-2.0
// Implements the three messages of a handshake, with fixed sizes and a MAC in both proofs.
#include "collectives/tcp/handshake.hpp"

#include <sys/uio.h>

#include <cerrno>
#include <cstring>

namespace lockstep::tcp {
namespace {

constexpr std::uint64_t magic = 0x3150'4354'4b4c'4f4c;  // also the version of the protocol
constexpr std::uint32_t no = 0;
constexpr std::uint32_t yes = 1;

// Is the called side's first message. Its nonce makes the caller's proof worthless for another connection.
struct HandshakeChallenge {
  std::uint64_t magic;
  HandshakeNonce nonce;
};

// Is the caller's answer: both ranks, the channel, and a MAC over these and both nonces.
struct CallerProof {
  MemberId from;
  std::uint32_t to_rank;
  std::uint32_t channel;
  HandshakeNonce nonce;
  Mac mac;
};

// Ends the handshake: the verdict, with a MAC, so that the caller knows that the other side has the key.
struct HandshakeReply {
  std::uint32_t verdict;
  Mac mac;
};

static_assert(sizeof(HandshakeChallenge) == 24 && sizeof(CallerProof) == 76 && sizeof(HandshakeReply) == 36);

template <class T>
Bytes bytes_of(const T& value) {
  const auto* const begin = reinterpret_cast<const std::byte*>(&value);
  return {begin, begin + sizeof value};
}

template <class T>
T value_of(const Bytes& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace

// The caller first listens; the called side speaks first.
Handshake Handshake::calling(Descriptor socket, std::shared_ptr<const Secret> key, const MemberId& from,
                             std::uint32_t to_rank, std::uint32_t channel) {
  Handshake shake(std::move(socket), std::move(key), true);
  shake.from_ = from;
  shake.to_rank_ = to_rank;
  shake.channel_ = channel;
  return shake;
}

Handshake Handshake::called(Descriptor socket, std::shared_ptr<const Secret> key) {
  Handshake shake(std::move(socket), std::move(key), false);
  fill_random(shake.of_called_);
  shake.saying_ = bytes_of(HandshakeChallenge{magic, shake.of_called_});
  return shake;
}

// Computes the proof of the caller, or of the called side with its verdict.
Mac Handshake::proof(std::string_view of_what, std::uint32_t verdict) const {
  Writer words;
  words.put("lockstep tcp").put(of_what).put(std::span<const std::byte>(from_.communicator));
  words.put(from_.rank).put(to_rank_).put(channel_).put(verdict);
  words.put(std::span<const std::byte>(of_called_)).put(std::span<const std::byte>(of_caller_));
  return key_->mac(words.take());
}

// Closes the connection. Error 0 means that the other side closed it.
void Handshake::fail(int error) {
  error_ = error;
  socket_.close();
  state_ = HandshakeState::failed;
}

// Sends the rest of the current message. Returns false if the socket takes no more now.
bool Handshake::say() {
  while (said_ < saying_.size()) {
    const IoResult moved = write_at_once(socket_, std::span(saying_).subspan(said_));
    if (moved.is_over) fail(moved.error);
    if (moved.bytes == 0) return false;
    said_ += moved.bytes;
  }
  return true;
}

// Receives until that many bytes of the current message are there. Returns false if some are missing.
bool Handshake::hear(std::size_t bytes) {
  while (heard_.size() < bytes) {
    const std::size_t before = heard_.size();
    heard_.resize(bytes);
    const IoResult moved = read(socket_, std::span(heard_).subspan(before));
    heard_.resize(before + moved.bytes);
    if (moved.is_over) fail(moved.error);
    if (moved.bytes == 0) return false;
  }
  return true;
}

// Answers the challenge. A connection that the other side has closed meanwhile is retried, so it is no wrong key.
void Handshake::say_proof() {
  const auto challenge = value_of<HandshakeChallenge>(heard_);
  heard_.clear();
  if (challenge.magic != magic) return fail(EPROTO);
  if (!is_connected(socket_)) return fail(ECONNRESET);  // the other side waited too long, or made room for others
  of_called_ = challenge.nonce;
  fill_random(of_caller_);
  saying_ = bytes_of(CallerProof{from_, to_rank_, channel_, of_caller_, proof("calls", yes)});
  said_ = 0;
  has_met_ = true;
}

// Accepts nothing of the caller's claims before its MAC is right.
void Handshake::hear_proof() {
  const auto theirs = value_of<CallerProof>(heard_);
  from_ = theirs.from;
  to_rank_ = theirs.to_rank;
  channel_ = theirs.channel;
  of_caller_ = theirs.nonce;
  if (!is_same(theirs.mac, proof("calls", yes))) return fail(EPROTO);
  has_met_ = true;
  state_ = HandshakeState::introduced;
}

// Sends the verdict; the owner decides it after the caller is introduced.
void Handshake::answer(bool is_accepted) {
  takes_ = is_accepted;
  const std::uint32_t verdict = is_accepted ? yes : no;
  saying_ = bytes_of(HandshakeReply{verdict, proof("was called", verdict)});
  said_ = 0;
  state_ = HandshakeState::under_way;
}

void Handshake::hear_verdict() {
  const auto theirs = value_of<HandshakeReply>(heard_);
  if (theirs.verdict > yes || !is_same(theirs.mac, proof("was called", theirs.verdict))) return fail(EPROTO);
  state_ = theirs.verdict == yes ? HandshakeState::taken : HandshakeState::refused;
}

// Does as much as the socket allows, without blocking.
HandshakeState Handshake::advance() {
  while (state_ == HandshakeState::under_way && say()) {
    if (calls_ && !has_met_) {
      if (!hear(sizeof(HandshakeChallenge))) break;
      say_proof();
    } else if (calls_) {
      if (!hear(sizeof(HandshakeReply))) break;
      hear_verdict();
    } else if (!has_met_) {
      if (!hear(sizeof(CallerProof))) break;
      hear_proof();
    } else {
      state_ = takes_ ? HandshakeState::taken : HandshakeState::refused;
    }
  }
  return state_;
}

}  // namespace lockstep::tcp
