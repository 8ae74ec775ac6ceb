// SPDX-License-Identifier: Apache-2.0
// From the members' own reports to the one topology that all of them hold.
#pragma once

#include "topology/exchange.hpp"
#include "topology/machine/device.hpp"
#include "topology/topology.hpp"

namespace lockstep {

// `colour` is equal for members that MPI puts on one host. All members call it; the answer is the same
// on all. Needs four all-gathers, the last of them with one picture for each kind of machine.
Topology discover(Exchange& exchange, int colour, const Devices& devices);

}  // namespace lockstep
