// SPDX-License-Identifier: Apache-2.0
// What carries the messages of a session over MPI: MPI itself, or sockets of our own. MPI is right where there is
// something faster than TCP between the nodes, and among members of one node, who hardly send messages. Over TCP it is
// our own, which see at once when a member has died.
#pragma once

#include <memory>
#include <string>

#include "collectives/tcp/tcp_transport.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {

class TransportChoice final : public Attachment {
 public:
  // Called by all members of the session, who try whether they reach each other. Throws where LOCKSTEP_TRANSPORT names
  // a way that does not lead there.
  explicit TransportChoice(Session& session);
  std::unique_ptr<Transport> transport(Exchange& exchange) const;
  // What was decided, for people.
  const std::string& why() const { return why_; }
  bool by_tcp() const { return tcp_ != nullptr; }
  bool failed() const override { return tcp_ && tcp_->has_lost(); }
  // What was measured between the nodes, the same on all members.
  const Topology::Network& network() const { return network_; }

 private:
  std::unique_ptr<Tcp> tcp_;
  std::string why_;
  Topology::Network network_;
};

}  // namespace lockstep
