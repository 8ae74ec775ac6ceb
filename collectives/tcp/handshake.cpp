// SPDX-License-Identifier: Apache-2.0
#include "collectives/tcp/handshake.hpp"

#include <sys/uio.h>

#include <cerrno>
#include <cstring>

namespace lockstep::tcp {
namespace {

constexpr std::uint64_t magic = 0x3150'4354'4b4c'4f4c;  // and the version of what is said
constexpr std::uint32_t no = 0;
constexpr std::uint32_t yes = 1;

struct Challenge {
  std::uint64_t magic;
  Nonce nonce;
};

struct Proof {
  Desk from;
  std::uint32_t to_rank;
  std::uint32_t channel;
  Nonce nonce;
  Mac mac;
};

struct Verdict {
  std::uint32_t verdict;
  Mac mac;
};

static_assert(sizeof(Challenge) == 24 && sizeof(Proof) == 76 && sizeof(Verdict) == 36);

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

Handshake Handshake::calling(Descriptor socket, std::shared_ptr<const Secret> key, const Desk& from,
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
  shake.saying_ = bytes_of(Challenge{magic, shake.of_called_});
  return shake;
}

// Of the one who calls, or of the one who is called with its verdict.
Mac Handshake::proof(std::string_view of_what, std::uint32_t verdict) const {
  Writer words;
  words.put("lockstep tcp").put(of_what).put(std::span<const std::byte>(from_.meeting));
  words.put(from_.rank).put(to_rank_).put(channel_).put(verdict);
  words.put(std::span<const std::byte>(of_called_)).put(std::span<const std::byte>(of_caller_));
  return key_->mac(words.take());
}

void Handshake::fail(int error) {
  error_ = error;
  socket_.close();
  state_ = State::failed;
}

// Whether all of it is said.
bool Handshake::say() {
  while (said_ < saying_.size()) {
    const Moved moved = write_at_once(socket_, std::span(saying_).subspan(said_));
    if (moved.is_over) fail(moved.error);
    if (moved.bytes == 0) return false;
    said_ += moved.bytes;
  }
  return true;
}

// Whether so much has come; no more than that is read.
bool Handshake::hear(std::size_t bytes) {
  while (heard_.size() < bytes) {
    const std::size_t before = heard_.size();
    heard_.resize(bytes);
    const Moved moved = read(socket_, std::span(heard_).subspan(before));
    heard_.resize(before + moved.bytes);
    if (moved.is_over) fail(moved.error);
    if (moved.bytes == 0) return false;
  }
  return true;
}

void Handshake::say_proof() {
  const auto challenge = value_of<Challenge>(heard_);
  heard_.clear();
  if (challenge.magic != magic) return fail(EPROTO);
  of_called_ = challenge.nonce;
  fill_random(of_caller_);
  saying_ = bytes_of(Proof{from_, to_rank_, channel_, of_caller_, proof("calls", yes)});
  said_ = 0;
  has_met_ = true;
}

void Handshake::hear_proof() {
  const auto theirs = value_of<Proof>(heard_);
  from_ = theirs.from;
  to_rank_ = theirs.to_rank;
  channel_ = theirs.channel;
  of_caller_ = theirs.nonce;
  if (!is_same(theirs.mac, proof("calls", yes))) return fail(EPROTO);
  has_met_ = true;
  state_ = State::introduced;
}

void Handshake::answer(bool takes) {
  takes_ = takes;
  const std::uint32_t verdict = takes ? yes : no;
  saying_ = bytes_of(Verdict{verdict, proof("was called", verdict)});
  said_ = 0;
  state_ = State::under_way;
}

void Handshake::hear_verdict() {
  const auto theirs = value_of<Verdict>(heard_);
  if (theirs.verdict > yes || !is_same(theirs.mac, proof("was called", theirs.verdict))) return fail(EPROTO);
  state_ = theirs.verdict == yes ? State::taken : State::refused;
}

Handshake::State Handshake::advance() {
  while (state_ == State::under_way && say()) {
    if (calls_ && !has_met_) {
      if (!hear(sizeof(Challenge))) break;
      say_proof();
    } else if (calls_) {
      if (!hear(sizeof(Verdict))) break;
      hear_verdict();
    } else if (!has_met_) {
      if (!hear(sizeof(Proof))) break;
      hear_proof();
    } else {
      state_ = takes_ ? State::taken : State::refused;
    }
  }
  return state_;
}

}  // namespace lockstep::tcp
