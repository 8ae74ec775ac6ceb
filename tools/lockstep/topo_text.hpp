// SPDX-License-Identifier: Apache-2.0
// Writes a topology as text that fits a screen, whatever its size. Equal parts are told once, and long lists are
// folded. The functions return whole lines of at most 100 columns.
#pragma once

#include <string>

#include "topology/topology.hpp"

namespace lockstep::command {

// Returns the tree of nodes, machines and members: at most 50 lines with the remarks.
std::string topo_tree(const Topology& topology);

// Returns the number of pairs of members for each kind of link, and the matrix for up to 16 members.
std::string topo_links(const Topology& topology);

// Returns the order of the ring, the leaders and the rails.
std::string topo_order(const Topology& topology);

}  // namespace lockstep::command
