// SPDX-License-Identifier: Apache-2.0
// Describes machines in a line of text, so that one can plan for machines that are not at hand. The grammar:
//
//   description = group { "+" group }
//   group       = [ count "x" ] "node(" items ")"  |  items.
//
// Items have blanks between them. An item is one of these:
//
//   "gpu:" count [ "@nvlink" | "@pcie" | "@host" ]
//   "nic:" [ count "x" ] rate
//   "ranks:" count
//   anything else, which goes to hwloc's synthetic parser unchanged.
//
// A rate is a number with M, G or T, in bits per second. The text "4 x node(package:2 numa:2 core:8 pu:2 gpu:4
// nic:25G)" is four nodes. This part is pure text; hwloc reads its part in topology/machine/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/machine_shape.hpp"
#include "topology/topology.hpp"

namespace lockstep {

// Holds one group of a description: `count` equal nodes.
struct NodeDescription {
  int count = 1;
  std::string hwloc;  // hwloc's part: "package:2 numa:2 core:8 pu:2"
  int gpus = 0;
  GpuLink gpu_link = GpuLink::same;  // same: PCIe within a package, via the host beyond
  std::vector<std::int64_t> nic_mbit_per_s;
  int ranks = 0;  // members on each node; 0: not given
  bool operator==(const NodeDescription&) const = default;
};

// Parses a description of at most 4096 letters. Throws Error bad_description with the place and the allowed words.
// Accepts at most 65536 nodes, and 65536 hardware threads on each.
std::vector<NodeDescription> parse_description(std::string_view description);

// Adds the GPUs and interfaces of the description to a shape, spread evenly over its hardware threads.
MachineShape with_devices(MachineShape shape, const NodeDescription& description);

// Returns places for `ranks` members on a machine: even shares of its cores and GPUs, in its order. If there are
// more ranks than cores or GPUs, several ranks share one. `machine` is the number that the places refer to.
std::vector<Place> even_places(const MachineShape& shape, int machine, int ranks);

// Returns the members of a described node without a number of ranks: one for each GPU, else one for each core.
int default_ranks(const MachineShape& shape);

// Holds `count` nodes of one shape, for describe().
struct DescribedNodes {
  MachineShape shape;
  int count = 1;
  int ranks = 0;  // members on each node; 0: default_ranks()
};

// Returns the topology of described nodes, named node0, node1, and so on. Throws Error bad_description for more than
// 2^20 members.
Topology describe(const std::vector<DescribedNodes>& nodes);

}  // namespace lockstep
