// SPDX-License-Identifier: Apache-2.0
// A transport over sockets of our own: TCP between hosts, the kernel's own within one. Members connect when they first
// have something for each other, prove to each other that they belong to one communicator, and see at once when a
// process at the other end has ended. Needs nothing but the kernel.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "collectives/engine/transport.hpp"
#include "topology/base/log.hpp"
#include "topology/exchange.hpp"
#include "topology/roster.hpp"
#include "topology/secret/secret.hpp"
#include "topology/topology.hpp"

namespace lockstep {

// Whether this build can prove keys, or the sentence why not.
std::optional<std::string> why_no_tcp();

struct TcpOptions {
  // Members prove that they have it before anything that they send counts.
  std::shared_ptr<const Secret> key = nullptr;
  // Of this host: where the others find it, and where it listens, and nowhere else.
  std::string address = {};
  // The address is not an interface's, but what the others know this host by: it listens at all of them.
  bool listens_everywhere = false;
  // A host from which nothing comes for so long, not even its kernel's answer, is gone.
  Duration silence = std::chrono::seconds(10);
  // How errors call this process, beside its ranks and number; empty: by where it listens.
  std::string label = {};
  // Told when a host has been silent for a while, and when it answers again.
  Log log = Log(LogLevel::off);
};

// The address of each node of a network that all nodes are in, the fastest one; nothing where there is none.
// `interface` names the one to take, or the beginning of its addresses, and need not be in one network; empty: any.
std::optional<std::vector<std::string>> common_network(const Topology& topology, const std::string& interface = {});

// A new one, the same for all members, told by what carries their exchange.
std::shared_ptr<const Secret> key_of_job(Exchange& exchange);

// In this process, for any number of transports.
class Tcp {
 public:
  // Throws Error usage where this build cannot, and system where nobody can listen at the address.
  explicit Tcp(const TcpOptions& options);
  ~Tcp();
  Tcp(const Tcp&) = delete;
  Tcp& operator=(const Tcp&) = delete;

  // Called by all members of the exchange; each transport is for one thread at a time. `lost` says which of the members
  // is known to be gone.
  std::unique_ptr<Transport> transport(Exchange& exchange, LostMemberLookup lost = {});

  // A member of any of the transports is gone, and had not left.
  bool has_lost() const;

  struct Shared;  // with the transports, which may outlive this

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace lockstep
