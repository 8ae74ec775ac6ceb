// SPDX-License-Identifier: Apache-2.0
// Makes the one topology that all members hold, from their own reports.
#pragma once

#include "topology/base/environment.hpp"
#include "topology/base/settings.hpp"
#include "topology/exchange.hpp"
#include "topology/machine/device.hpp"
#include "topology/topology.hpp"

namespace lockstep {

// Names the rack of this host, as settings or Slurm tell it.
// An empty name is an unknown rack.
struct Rack {
  std::string name = {};
  std::int64_t mbit_per_s = 0;  // from the rack to all others; 0: unknown
};
// Returns the rack from LOCKSTEP_RACKS, or else from Slurm. Throws Error bad_setting or file.
Rack rack_here(const Settings& settings, const Environment& environment);

// Returns the topology, which is the same on all members. All of them call it. One member of each node reads the
// machine for all of them. `colour` is equal for members that MPI puts on one host. It needs five all-gathers; in one
// of them, each kind of machine is sent once.
Topology discover(Exchange& exchange, int colour, const VisibleGpus& devices, const Rack& rack = {});

}  // namespace lockstep
