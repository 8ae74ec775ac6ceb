// SPDX-License-Identifier: Apache-2.0
// Machines one does not have, described in a line of text:
//
//   description = group { "+" group }
//   group       = [ count "x" ] "node(" item { " " item } ")"  |  item { " " item }
//   item        = "gpu:" count [ "@nvlink" | "@pcie" | "@host" ]
//               | "nic:" [ count "x" ] rate          rate = number "M" | "G" | "T" (bits per second)
//               | "ranks:" count
//               | anything else, which goes to hwloc's synthetic parser unchanged
//
// "4 x node(package:2 numa:2 core:8 pu:2 gpu:4 nic:25G)" is four nodes. This part is pure text; hwloc
// reads its part in topology/machine/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/machine_shape.hpp"
#include "topology/topology.hpp"

namespace lockstep {

struct NodeDescription {
  int count = 1;
  std::string hwloc;  // "package:2 numa:2 core:8 pu:2"
  int gpus = 0;
  GpuLink gpu_link = GpuLink::same;  // same: by place, PCIe in a package and via the host beyond
  std::vector<std::int64_t> nic_mbit_per_s;
  int ranks = 0;  // 0: not said
  bool operator==(const NodeDescription&) const = default;
};

// Throws Error bad_description with the place and what is allowed there. Bounded: at most 65536
// nodes and 65536 hardware threads a node.
std::vector<NodeDescription> parse_description(std::string_view description);

// The shape with the GPUs and interfaces of the description, spread evenly over NUMA nodes.
MachineShape with_devices(MachineShape shape, const NodeDescription& description);

// Where `ranks` members go on a machine: even shares of its cores and GPUs, in its order; several on a
// core or GPU when there are more ranks than those.
std::vector<Place> even_places(const MachineShape& shape, int machine, int ranks);

// Members that a described node has when nobody says: one for each GPU, else one for each core.
int default_ranks(const MachineShape& shape);

struct DescribedNodes {
  MachineShape shape;
  int count = 1;
  int ranks = 0;  // 0: default_ranks
};

// The topology of described nodes, named node0, node1, ... Throws Error bad_description when there are
// too many members.
Topology describe(const std::vector<DescribedNodes>& nodes);

}  // namespace lockstep
