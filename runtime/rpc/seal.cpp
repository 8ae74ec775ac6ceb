// SPDX-License-Identifier: Apache-2.0
#include "runtime/rpc/seal.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

namespace lockstep::rpc::detail {
namespace {

constexpr std::size_t head = sizeof(Nonce) + 2 * sizeof(std::uint64_t);

// Both directions, so that neither can stand for the other. Every part has its length before it.
Mac mac_of(const Secret& key, std::string_view direction, const Nonce& server, const Ticket& ticket,
           std::string_view method, std::span<const std::byte> bytes) {
  Writer writer;
  writer.put(direction).put(std::span<const std::byte>(server)).put(std::span<const std::byte>(ticket.client));
  writer.put(ticket.number).put(ticket.lowest).put(method).put(bytes);
  return key.mac(writer.take());
}
Mac mac_of_call(const Secret& key, const Nonce& server, const Ticket& ticket, std::string_view method,
                std::span<const std::byte> bytes) {
  return mac_of(key, "lockstep call", server, ticket, method, bytes);
}
Mac mac_of_answer(const Secret& key, const Nonce& server, const Ticket& ticket, std::string_view method,
                  std::span<const std::byte> bytes) {
  return mac_of(key, "lockstep answer", server, ticket, method, bytes);
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

bool NumbersOnce::take(std::uint64_t number, std::uint64_t lowest) {
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

std::optional<ServerSeal::Opened> ServerSeal::open(std::string_view method, std::span<const std::byte> call) {
  if (call.size() < head + sizeof(Mac)) return std::nullopt;
  Opened opened;
  std::ranges::copy(call.first(sizeof(Nonce)), opened.ticket.client.begin());
  Reader numbers(call.subspan(sizeof(Nonce), head - sizeof(Nonce)));
  opened.ticket.number = numbers.get<std::uint64_t>();
  opened.ticket.lowest = numbers.get<std::uint64_t>();
  const auto proof = call.subspan(head, sizeof(Mac));
  const auto arguments = call.subspan(head + sizeof(Mac));
  if (!is_same(proof, mac_of_call(*key_, nonce_, opened.ticket, method, arguments))) return std::nullopt;
  {
    const std::lock_guard lock(mutex_);
    if (!used_[opened.ticket.client].take(opened.ticket.number, opened.ticket.lowest)) return std::nullopt;
  }
  opened.arguments.assign(arguments.begin(), arguments.end());
  return opened;
}

Bytes ServerSeal::seal(const Ticket& ticket, std::string_view method, std::span<const std::byte> answer) const {
  return joined({mac_of_answer(*key_, nonce_, ticket, method, answer), answer});
}

ClientSeal::ClientSeal(std::shared_ptr<const Secret> key) : key_(std::move(key)), nonce_(draw()) {}

Ticket ClientSeal::begin() {
  const std::lock_guard lock(mutex_);
  open_.insert(++last_);
  return {nonce_, last_, *open_.begin()};
}

void ClientSeal::end(const Ticket& ticket) {
  const std::lock_guard lock(mutex_);
  open_.erase(ticket.number);
}

Bytes ClientSeal::seal(const Ticket& ticket, const Nonce& server, std::string_view method,
                       std::span<const std::byte> arguments) const {
  return joined({ticket.client, Writer().put(ticket.number).put(ticket.lowest).take(),
                 mac_of_call(*key_, server, ticket, method, arguments), arguments});
}

std::optional<Bytes> ClientSeal::open(const Ticket& ticket, const Nonce& server, std::string_view method,
                                      std::span<const std::byte> answer) const {
  if (answer.size() < sizeof(Mac)) return std::nullopt;
  const auto words = answer.subspan(sizeof(Mac));
  if (!is_same(answer.first(sizeof(Mac)), mac_of_answer(*key_, server, ticket, method, words))) return std::nullopt;
  return Bytes(words.begin(), words.end());
}

}  // namespace lockstep::rpc::detail
