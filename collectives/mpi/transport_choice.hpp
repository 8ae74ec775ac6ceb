// SPDX-License-Identifier: Apache-2.0
// Chooses between MPI and Lockstep's own sockets for the messages of a session. MPI is better on a network that is
// faster than TCP, and on a single node, where few messages are sent. Otherwise the sockets are better, because they
// see a member's death at once.
#pragma once

#include <memory>
#include <string>

#include "collectives/tcp/tcp_transport.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {

// Holds the choice, and the sockets if they were chosen.
class TransportChoice final : public Attachment {
 public:
  // Chooses; all members of the session call it, and try whether they reach each other. Throws Error if
  // LOCKSTEP_TRANSPORT names a transport that does not work.
  explicit TransportChoice(Session& session);
  // Makes a transport for the exchange; transports over sockets may outlive this object.
  std::unique_ptr<Transport> transport(Exchange& exchange) const;
  // Returns the reason for the choice, for people.
  const std::string& why() const { return why_; }
  bool by_tcp() const { return tcp_ != nullptr; }
  bool failed() const override { return tcp_ && tcp_->has_lost(); }
  // Returns the measured speed between the nodes, the same on all members. It is empty over MPI or on one node.
  const Topology::Network& network() const { return network_; }

 private:
  std::unique_ptr<Tcp> tcp_;
  std::string why_;
  Topology::Network network_;
};

}  // namespace lockstep
