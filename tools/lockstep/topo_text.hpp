// SPDX-License-Identifier: Apache-2.0
// A topology as text that fits a screen, however large it is: what is equal is told once, and what is
// still too much is folded. The answers are whole lines of at most 100 columns.
#pragma once

#include <string>

#include "topology/topology.hpp"

namespace lockstep::command {

// The tree of nodes, machines and members; at most 50 lines, remarks included.
std::string topo_tree(const Topology& topology);

// How many pairs of members have which kind of link, and the matrix for up to 16 members.
std::string topo_links(const Topology& topology);

// The order of the ring, the leaders and the rails.
std::string topo_order(const Topology& topology);

}  // namespace lockstep::command
