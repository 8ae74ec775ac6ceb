// SPDX-License-Identifier: Apache-2.0
// Finds equal parts, so that the text and the picture of `lockstep topo` show them once. Equal are nodes of one kind
// and levels inside a machine. Names and numbers fold to "node[0-511]" and "0-1016 by 8".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/topology.hpp"

namespace lockstep::command {

// Holds nodes with the same machine and the same arrangement of members, with any ranks.
struct NodeKind {
  std::vector<int> nodes;  // ascending; the first one stands for all
  std::vector<int> ranks;  // of all these nodes, ascending
  int exemplar() const { return nodes.front(); }
};

// Returns the kinds in the order of their first nodes.
std::vector<NodeKind> kinds_of(const Topology& topology);

enum class PartLevel : std::uint8_t { package, numa, l3 };

struct PartName {
  PartLevel level;
  int number;
};

// Describes a piece of a machine. It has several names if one level holds exactly one part of the next level. It has
// either smaller parts or cores.
struct MachinePart {
  std::vector<PartName> names;
  std::vector<MachinePart> parts;
  std::vector<int> cores;  // all cores in it, in the machine's order
};

// Returns the tree of the machine's parts.
MachinePart parts_of(const MachineShape& machine);
// Returns text such as "2 packages, each: 2 NUMA nodes (L3 32 MiB), each: 16 cores × 2 threads".
std::string inside_of(const MachineShape& machine);

// Returns "node[0-511]": ranges of names that differ in one number only, at most `most` of them.
std::string fold_names(std::span<const std::string> names, std::size_t most = 4);
// Returns "0-1016 by 8": runs with equal steps, in the given order, at most `most` of them.
std::string fold_numbers(std::span<const int> numbers, std::size_t most = 4);
std::string fold_numbers(const IndexSet& numbers, std::size_t most = 4);

std::string format_rate(std::int64_t mbit_per_s);              // "25 Gbit/s"; "rate unknown" for 0
std::string plural(std::size_t count, std::string_view what);  // "1 node", "2 nodes"

// Returns text such as "64 members on 4 nodes, 16 on each".
std::string headline(const Topology& topology);
// Returns text such as "network: nic0 25 Gbit/s"; it is empty for a single node.
std::string network_line(const Topology& topology);
// Returns "nic[0-1] 100 Gbit/s" for each rate.
std::vector<std::string> nic_lines(const std::vector<Nic>& nics);
// Returns names such as "8 × NVIDIA H100", "gpu[0-3]".
std::string gpu_names(const MachineShape& machine);
// Returns "nvlink between all", or "2 pairs pcie, 4 pairs via host". It is empty for fewer than two GPUs.
std::string gpu_links(const MachineShape& machine);
// Returns each member's share of cores at the most crowded place: "8 cores for each member", "4 members for one core".
std::string crowding(const Topology& topology, int node);

}  // namespace lockstep::command
