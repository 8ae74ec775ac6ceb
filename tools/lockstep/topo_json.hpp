// SPDX-License-Identifier: Apache-2.0
// Writes a topology as complete JSON, so that a script can draw its own conclusions.
//
//   schema             1; a higher number means that a field changed its meaning
//   members, nodes     how many
//   fingerprint        16 hexadecimal digits, equal for equal topologies
//   machine_shapes     [ ] each once: model, memory_gib, l2_bytes, l3_bytes,
//                      pus [{os_index, core, l2, l3, numa, package}],
//                      gpus [{name, bus, numa, package}], gpu_links [[text]] row by row,
//                      nics [{name, mbit_per_s, numa, package}]
//   places             [ ] each once: machine, pus, cpu_quota, gpus (positions in the machine's lists)
//   node_list          [ ] host, rack, machine, members_per_core, gpu_ids, addresses [{nic, address}], ranks
//   member_list        [ ] by rank: rank, node, place, pid, index_in_node, closest_gpus, closest_nics
//   order              ring, leaders (ranks), rails (lists of ranks)
//   remarks            [ text ]
//
// The fields machine, place, node, nic, numa and the like are positions in those lists; null if the machine has none or
// does not tell. An unknown mbit_per_s and an unlimited cpu_quota are 0.
#pragma once

#include <string>

#include "topology/topology.hpp"

namespace lockstep::command {

// Returns the JSON, indented by two blanks at the outer levels. It ends with a line feed.
std::string topo_json(const Topology& topology);

}  // namespace lockstep::command
