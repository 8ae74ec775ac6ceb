// SPDX-License-Identifier: Apache-2.0
// Reading a machine: this one, one that somebody exported as hwloc XML, or one that hwloc makes from a
// synthetic description. All of hwloc is behind this header.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/base/log.hpp"
#include "topology/machine_shape.hpp"
#include "topology/topology.hpp"

namespace lockstep {

// The whole machine, also the parts that this process may not use. Interfaces are read from the
// system, GPUs that hwloc sees on the PCI bus are in it; what CUDA sees is topology/machine/device.hpp.
MachineShape read_this_machine(const Log& log);

// hwloc's own part of a description, "package:2 core:4 pu:2". Throws Error bad_description.
MachineShape read_synthetic_machine(std::string_view words);

// An XML file of hwloc or lstopo. Foreign files are read in a child process with limits on time and
// memory, because hwloc's importer has crashed on crafted ones. Throws Error bad_xml.
MachineShape read_xml_machine(const std::string& path);

// Positions in machine.pus of the hardware threads that this process may run on now.
IndexSet allowed_pus(const MachineShape& machine);

// The whole of a --synthetic or --xml request: what describe() takes.
Topology topology_from_description(std::string_view description, int ranks_per_node);
Topology topology_from_xml(const std::vector<std::string>& paths, int nodes_each, int ranks_per_node);

std::string hwloc_version();  // that this was built with

}  // namespace lockstep
