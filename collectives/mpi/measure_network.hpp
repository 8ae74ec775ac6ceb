// SPDX-License-Identifier: Apache-2.0
// What the network between nodes does, tried: interfaces say what they could do, not what links let through.
#pragma once

#include "collectives/engine/transport.hpp"
#include "topology/exchange.hpp"
#include "topology/topology.hpp"

namespace lockstep {

// All members call it, and all get the same. Takes about a fifth of a second. Throws on all where one cannot.
Topology::Network measure_network(Transport& transport, Exchange& exchange, const Topology& topology);

}  // namespace lockstep
