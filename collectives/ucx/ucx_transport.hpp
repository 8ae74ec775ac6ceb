// SPDX-License-Identifier: Apache-2.0
// A transport over UCX, the engine under most MPIs: for processes that are no ranks of MPI. Shared memory within a
// host, TCP or InfiniBand between hosts. UCX is loaded when it is first needed, not before.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "collectives/engine/transport.hpp"
#include "topology/exchange.hpp"
#include "topology/roster.hpp"
#include "topology/secret/secret.hpp"

namespace lockstep {

// Meson's feature `ucx`: whether this build can, or the sentence why not.
std::optional<std::string> why_no_ucx();

struct UcxOptions {
  // What every message has to prove; others are dropped.
  std::shared_ptr<const Secret> key = nullptr;
  // The network interface that leads to the others: UCX would listen on all of them. Empty: those of UCX_NET_DEVICES,
  // or all.
  std::string device = {};
  // How errors call this process, beside its ranks and number.
  std::string label = {};
};

// UCX in this process, for any number of transports.
class Ucx {
 public:
  // Throws Error usage where this build has no UCX, and system where UCX cannot be loaded or begun.
  explicit Ucx(UcxOptions options);
  ~Ucx();
  Ucx(const Ucx&) = delete;
  Ucx& operator=(const Ucx&) = delete;

  // Called by all members of the exchange; each transport is for one thread at a time. `lost` says which of the members
  // is known to be gone.
  std::unique_ptr<Transport> transport(Exchange& exchange, LostMemberLookup lost = {});

  struct Shared;  // with the transports, which may outlive this

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace lockstep
