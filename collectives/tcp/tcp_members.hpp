// SPDX-License-Identifier: Apache-2.0
// Knows the members of a communicator: where they listen, their names, and their processes.
//
// A TcpTransport owns it. It never changes after the members have exchanged their addresses.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/tcp/handshake.hpp"
#include "topology/exchange.hpp"
#include "topology/roster.hpp"

namespace lockstep::tcp {

// Holds the address and the name of each member, by rank. It does not change.
class TcpMembers {
 public:
  // Exchanges the addresses and labels of all members; all of them call it together. Throws Error bad_message.
  TcpMembers(const ListeningAddress& own, const std::string& label, Exchange& exchange);
  // Returns these members alone, in this order. The nonce of their communicator is derived from the present one, their
  // ranks and `number` by the key, so nobody needs to ask the others.
  TcpMembers among(std::span<const int> ranks, std::uint64_t number, const Secret& key) const;

  int rank() const { return static_cast<int>(self_.rank); }
  int size() const { return static_cast<int>(addresses_.size()); }
  const MemberId& self() const { return self_; }
  const ListeningAddress& address_of(int rank) const { return addresses_[static_cast<std::size_t>(rank)]; }
  bool is_on_this_host(int rank) const { return address_of(rank).is_on_host_of(address_of(this->rank())); }
  const Roster& roster() const { return roster_; }

 private:
  TcpMembers() = default;

  MemberId self_;
  std::vector<ListeningAddress> addresses_;
  Roster roster_;
};

}  // namespace lockstep::tcp
