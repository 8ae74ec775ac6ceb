// SPDX-License-Identifier: Apache-2.0
// Exchanges the addresses of members, and derives the members of later communicators.
#include "collectives/tcp/tcp_members.hpp"

#include <algorithm>

#include "collectives/engine/round_rules.hpp"
#include "topology/base/error.hpp"

namespace lockstep::tcp {

// The nonce of rank 0 names the communicator.
TcpMembers::TcpMembers(const ListeningAddress& own, const std::string& label, Exchange& exchange) {
  self_.rank = static_cast<std::uint32_t>(exchange.rank());
  HandshakeNonce nonce;
  fill_random(nonce);
  Writer mine;
  own.write(mine);
  mine.put(std::span<const std::byte>(nonce));
  Roster::introduce(mine, label.empty() ? to_text(own) : label);
  const auto all = exchange.all_gather("addresses of members", mine.take());
  addresses_.reserve(all.size());
  for (const Bytes& each : all) {
    Reader reader(each);
    addresses_.push_back(ListeningAddress::read(reader));
    const Bytes theirs = reader.get_bytes();
    if (theirs.size() != nonce.size()) throw Error(Code::bad_message, "a nonce of another length");
    if (addresses_.size() == 1) std::copy(theirs.begin(), theirs.end(), self_.communicator.begin());
    roster_.add(reader);
  }
}

TcpMembers TcpMembers::among(std::span<const int> ranks, std::uint64_t number, const Secret& key) const {
  TcpMembers members;
  Writer derived;
  derived.put(std::string_view("lockstep regroup"));
  derived.put(std::span<const std::byte>(self_.communicator)).put(number);
  members.addresses_.reserve(ranks.size());
  for (const int each : ranks) {
    derived.put(each);
    members.addresses_.push_back(addresses_.at(static_cast<std::size_t>(each)));
  }
  const Mac mac = key.mac(derived.take());
  members.self_.rank = static_cast<std::uint32_t>(round_rules::rank_among(ranks, rank()));
  std::copy_n(mac.begin(), members.self_.communicator.size(), members.self_.communicator.begin());
  members.roster_ = roster_.among(ranks);
  return members;
}

}  // namespace lockstep::tcp
