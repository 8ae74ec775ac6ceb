// SPDX-License-Identifier: Apache-2.0
// Measures the network between nodes, because interfaces state their own speed, not that of the links.
#pragma once

#include "collectives/engine/transport.hpp"
#include "topology/exchange.hpp"
#include "topology/topology.hpp"

namespace lockstep {

// Returns the same result on all members; all of them call it together. Takes about 0.2 s. If it fails on one member,
// it throws on all.
Topology::Network measure_network(Transport& transport, Exchange& exchange, const Topology& topology);

}  // namespace lockstep
