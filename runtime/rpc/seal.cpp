// SPDX-License-Identifier: Apache-2.0
// Computes and checks the proofs of calls and answers.
#include "runtime/rpc/seal.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

namespace lockstep::rpc::detail {
namespace {

// Are the sizes in bytes of a proof's parts: the client's nonce and two numbers, the digest of the arguments, and a
// MAC.
constexpr std::size_t of_ticket = sizeof(Nonce) + 2 * sizeof(std::uint64_t);
constexpr std::size_t of_proof = of_ticket + sizeof(Digest) + sizeof(Mac);

// Includes the direction, so that a call cannot stand for an answer. Every part has its length before it.
Mac mac_of(const Secret& key, std::string_view direction, const Nonce& server, const CallIdentity& identity,
           std::string_view method, std::span<const std::byte> bytes) {
  Writer writer;
  writer.put(direction).put(std::span<const std::byte>(server)).put(std::span<const std::byte>(identity.client));
  writer.put(identity.number).put(identity.lowest).put(method).put(bytes);
  return key.mac(writer.take());
}
Mac mac_of_call(const Secret& key, const Nonce& server, const CallIdentity& identity, std::string_view method,
                std::span<const std::byte> bytes) {
  return mac_of(key, "lockstep call", server, identity, method, bytes);
}
Mac mac_of_answer(const Secret& key, const Nonce& server, const CallIdentity& identity, std::string_view method,
                  std::span<const std::byte> bytes) {
  return mac_of(key, "lockstep answer", server, identity, method, bytes);
}

Nonce draw() {
  Nonce nonce;
  fill_random(nonce);
  return nonce;
}

Bytes joined(std::initializer_list<std::span<const std::byte>> parts) {
  std::size_t size = 0;
  for (const auto& each : parts) size += each.size();
  Bytes all(size);
  auto end = all.begin();
  for (const auto& each : parts) end = std::ranges::copy(each, end).out;
  return all;
}

}  // namespace

bool ReplayWindow::take(std::uint64_t number, std::uint64_t lowest) {
  if (number < lowest_ || number < lowest || number == std::numeric_limits<std::uint64_t>::max()) return false;
  lowest_ = std::max(lowest_, lowest);
  while (!ranges_.empty() && ranges_.begin()->second < lowest_) ranges_.erase(ranges_.begin());
  auto after = ranges_.upper_bound(number);
  auto before = after == ranges_.begin() ? ranges_.end() : std::prev(after);
  if (before != ranges_.end() && number <= before->second) return false;
  const bool extends = before != ranges_.end() && before->second + 1 == number;
  const bool meets = after != ranges_.end() && after->first == number + 1;
  const std::uint64_t last = meets ? after->second : number;
  if (meets) ranges_.erase(after);
  if (extends)
    before->second = last;
  else
    ranges_.emplace(number, last);
  return true;
}

ServerSeal::ServerSeal(std::shared_ptr<const Secret> key) : key_(std::move(key)), nonce_(draw()) {}

std::optional<ServerSeal::VerifiedCall> ServerSeal::open(std::string_view method, std::span<const std::byte> proof) {
  if (proof.size() != of_proof) return std::nullopt;
  VerifiedCall opened{};
  std::ranges::copy(proof.first(sizeof(Nonce)), opened.identity.client.begin());
  Reader numbers(proof.subspan(sizeof(Nonce), of_ticket - sizeof(Nonce)));
  opened.identity.number = numbers.get<std::uint64_t>();
  opened.identity.lowest = numbers.get<std::uint64_t>();
  std::ranges::copy(proof.subspan(of_ticket, sizeof(Digest)), opened.arguments.begin());
  const Mac expected = mac_of_call(*key_, nonce_, opened.identity, method, opened.arguments);
  if (!is_same(proof.last(sizeof(Mac)), expected)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (!used_[opened.identity.client].take(opened.identity.number, opened.identity.lowest)) return std::nullopt;
  return opened;
}

Bytes ServerSeal::seal(const CallIdentity& identity, std::string_view method, std::span<const std::byte> answer) const {
  return joined({mac_of_answer(*key_, nonce_, identity, method, answer), answer});
}

ClientSeal::ClientSeal(std::shared_ptr<const Secret> key) : key_(std::move(key)), nonce_(draw()) {}

CallIdentity ClientSeal::begin() {
  const std::lock_guard lock(mutex_);
  open_.insert(++last_);
  return {nonce_, last_, *open_.begin()};
}

void ClientSeal::end(const CallIdentity& identity) {
  const std::lock_guard lock(mutex_);
  open_.erase(identity.number);
}

Bytes ClientSeal::seal(const CallIdentity& identity, const Nonce& server, std::string_view method,
                       std::span<const std::byte> arguments) const {
  const Digest digest = digest_of(arguments);
  return joined({identity.client, Writer().put(identity.number).put(identity.lowest).take(), digest,
                 mac_of_call(*key_, server, identity, method, digest)});
}

std::optional<Bytes> ClientSeal::open(const CallIdentity& identity, const Nonce& server, std::string_view method,
                                      std::span<const std::byte> answer) const {
  if (answer.size() < sizeof(Mac)) return std::nullopt;
  const auto words = answer.subspan(sizeof(Mac));
  if (!is_same(answer.first(sizeof(Mac)), mac_of_answer(*key_, server, identity, method, words))) return std::nullopt;
  return Bytes(words.begin(), words.end());
}

}  // namespace lockstep::rpc::detail
