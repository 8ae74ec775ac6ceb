// SPDX-License-Identifier: Apache-2.0
// From the members' own reports to the one topology that all of them hold.
#pragma once

#include "topology/base/environment.hpp"
#include "topology/base/settings.hpp"
#include "topology/exchange.hpp"
#include "topology/machine/device.hpp"
#include "topology/topology.hpp"

namespace lockstep {

// What this host stands in, as settings say, or Slurm.
struct Rack {
  std::string name = {};
  std::int64_t mbit_per_s = 0;  // to all others; 0: nobody has said
};
Rack rack_here(const Settings& settings, const Environment& environment);

// `colour` is equal for members that MPI puts on one host. All members call it; the answer is the same
// on all. Needs four all-gathers, the last of them with one picture for each kind of machine.
Topology discover(Exchange& exchange, int colour, const VisibleGpus& devices, const Rack& rack = {});

}  // namespace lockstep
