// SPDX-License-Identifier: Apache-2.0
// What is equal, told once: nodes of one kind, the levels inside a machine, names and numbers folded to
// "node[0-511]" and "0-1016 by 8". Shared by the text and the picture of `lockstep topo`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/topology.hpp"

namespace lockstep::command {

// Nodes with the same machine and the same arrangement of members on it, whatever the ranks are.
struct NodeKind {
  std::vector<int> nodes;  // ascending; the first one stands for all
  std::vector<int> ranks;  // of all of these nodes, ascending
  int exemplar() const { return nodes.front(); }
};

// In the order in which they appear.
std::vector<NodeKind> kinds_of(const Topology& topology);

enum class PartLevel : std::uint8_t { package, numa, l3 };

struct PartName {
  PartLevel level;
  int number;
};

// A piece of a machine. It has several names where one level holds exactly one of the next; it has
// either smaller parts or cores.
struct MachinePart {
  std::vector<PartName> names;
  std::vector<MachinePart> parts;
  std::vector<int> cores;  // all cores in it, in the machine's order
};

MachinePart parts_of(const MachineShape& machine);
// "2 packages, each: 2 NUMA nodes (L3 32 MiB), each: 16 cores × 2 threads"
std::string inside_of(const MachineShape& machine);

// "node[0-511]": names that differ in one number only, as ranges; at most `most` of what is left.
std::string fold_names(std::span<const std::string> names, std::size_t most = 4);
// "0-1016 by 8": runs with equal steps, in the order given; at most `most` of them.
std::string fold_numbers(std::span<const int> numbers, std::size_t most = 4);
std::string fold_numbers(const IndexSet& numbers, std::size_t most = 4);

std::string format_rate(std::int64_t mbit_per_s);              // "25 Gbit/s"; "rate unknown" for 0
std::string plural(std::size_t count, std::string_view what);  // "1 node", "2 nodes"

// "64 members on 4 nodes, 16 on each"
std::string headline(const Topology& topology);
// "network: nic0 25 Gbit/s"; empty for a single node.
std::string network_line(const Topology& topology);
// "nic[0-1] 100 Gbit/s" for each rate.
std::vector<std::string> nic_lines(const std::vector<Nic>& nics);
// "8 × NVIDIA H100", "gpu[0-3]"
std::string gpu_names(const MachineShape& machine);
// "nvlink between all", "2 pairs pcie, 4 pairs via host"; empty for fewer than two GPUs.
std::string gpu_links(const MachineShape& machine);
// What there is for each member at the most crowded place: "8 cores for each member", "4 members for one core".
std::string crowding(const Topology& topology, int node);

}  // namespace lockstep::command
