// SPDX-License-Identifier: Apache-2.0
// Declares the transport over UCX, the engine under most MPIs, for processes that are not ranks of MPI. It uses shared
// memory within a host, and TCP or InfiniBand between hosts. UCX is loaded when first needed.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "collectives/engine/transport.hpp"
#include "topology/exchange.hpp"
#include "topology/roster.hpp"
#include "topology/secret/secret.hpp"

namespace lockstep {

// Returns nothing if this build has UCX (Meson's feature `ucx`), otherwise the sentence that says why not.
std::optional<std::string> why_no_ucx();

// Configures Ucx.
struct UcxOptions {
  // Is the key that every message has to prove; other messages are dropped. Required.
  std::shared_ptr<const Secret> key = nullptr;
  // Names the network interface that leads to the others; without it UCX would listen on all of them. The variable
  // UCX_NET_DEVICES comes first. Empty means that variable, or all interfaces.
  std::string device = {};
  // Names this process in errors, beside its ranks and number.
  std::string label = {};
};

// Owns UCX in this process, for any number of transports.
class Ucx {
 public:
  // Loads and starts UCX. Throws Error usage if this build has no UCX, and system if UCX cannot be loaded or started.
  explicit Ucx(UcxOptions options);
  ~Ucx();
  Ucx(const Ucx&) = delete;
  Ucx& operator=(const Ucx&) = delete;

  // Makes a transport; all members of the exchange call it. One thread at a time may use a transport. `lost` tells
  // which member is known to be gone. Transports may outlive this object.
  std::unique_ptr<Transport> transport(Exchange& exchange, LostMemberLookup lost = {});

  struct Shared;  // shared with the transports, which may outlive this

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace lockstep
