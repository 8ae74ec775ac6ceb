// SPDX-License-Identifier: Apache-2.0
// Reads a machine: this one, one that was exported as hwloc XML, or one that hwloc makes from a synthetic description.
// All of hwloc is behind this header.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/base/log.hpp"
#include "topology/machine_shape.hpp"
#include "topology/topology.hpp"

namespace lockstep {

// Returns the whole machine, also the parts that this process may not use. Interfaces come from the system, and GPUs
// from the PCI bus as hwloc sees it. topology/machine/device.hpp has the GPUs of CUDA. Throws Error system. A process
// asks hwloc once, and again only if HWLOC_XMLFILE or HWLOC_SYNTHETIC changes. It asks for interfaces each time.
MachineShape read_this_machine(const Log& log);

// Reads hwloc's own part of a description, "package:2 core:4 pu:2", in a child process. Throws Error bad_description.
MachineShape read_synthetic_machine(std::string_view words);

// Reads an XML file of hwloc or lstopo, of at most 64 MiB. A child process with limits on time and memory does it,
// because hwloc's importer has crashed on crafted files. Throws Error bad_xml.
MachineShape read_xml_machine(const std::string& path);

// Returns the hardware threads that this process may run on now, as positions in machine.pus. Returns all if the
// picture has none of them.
IndexSet allowed_pus(const MachineShape& machine);

// Return the topology of a --synthetic or --xml request. `ranks_per_node` 0 means default_ranks(); each XML file stands
// for `nodes_each` nodes.
Topology topology_from_description(std::string_view description, int ranks_per_node);
Topology topology_from_xml(const std::vector<std::string>& paths, int nodes_each, int ranks_per_node);

std::string hwloc_version();  // the version that this was built with

}  // namespace lockstep
