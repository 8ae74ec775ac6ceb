// SPDX-License-Identifier: Apache-2.0
// Declares the transport over Lockstep's own sockets: TCP between hosts, Unix sockets within one. Ranks connect on
// their first message, and prove to each other that they belong to one communicator. They see at once if a process
// ends. The transport needs only the kernel.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "collectives/engine/transport.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/log.hpp"
#include "topology/exchange.hpp"
#include "topology/roster.hpp"
#include "topology/secret/secret.hpp"
#include "topology/topology.hpp"

namespace lockstep {

// Returns nothing if this build can prove keys, otherwise the sentence that says why not.
std::optional<std::string> why_no_tcp();

// Configures Tcp.
struct TcpOptions {
  // Is the key that ranks prove to each other before any of their data counts; required.
  std::shared_ptr<const Secret> key = nullptr;
  // Is the address of this host. Others find it there, and it listens there only.
  std::string address = {};
  // Listens at all interfaces, because the address belongs to none: it is the name under which others reach this host.
  bool listens_everywhere = false;
  // Counts a host as gone after this time without any sign, even from its kernel.
  Duration silence = std::chrono::seconds(10);
  // Names this process in errors, beside its ranks and number. If empty, the place where it listens does.
  std::string label = {};
  // Receives a warning if a host is silent for a while, and a line when it answers again.
  Log log = Log(LogLevel::off);
};

// Returns one address per node, in the fastest network that all nodes share; nothing if there is none. `interface`
// restricts the choice to an interface by its name, or to addresses by their beginning. A restricted choice need not be
// one network. Empty means no restriction.
std::optional<std::vector<std::string>> common_network(const Topology& topology, const std::string& interface = {});

// Makes a random key that all ranks share. The exchange carries it, so anything that can read the exchange knows the
// key.
std::shared_ptr<const Secret> key_of_job(Exchange& exchange);

// Owns the sockets of this process, for any number of transports.
class Tcp {
 public:
  // Starts to listen. Throws Error usage if this build has no OpenSSL, and system if the address cannot be used.
  explicit Tcp(const TcpOptions& options);
  ~Tcp();
  Tcp(const Tcp&) = delete;
  Tcp& operator=(const Tcp&) = delete;

  // Makes a transport; all members of the exchange call it. One thread at a time may use a transport. `lost` tells
  // which member is known to be gone. Transports may outlive this object.
  std::unique_ptr<Transport> transport(Exchange& exchange, LostMemberLookup lost = {});

  // True if a member of any transport is gone without having left.
  bool has_lost() const;

  struct Shared;  // shared with the transports, which may outlive this

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace lockstep
