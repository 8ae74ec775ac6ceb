// SPDX-License-Identifier: Apache-2.0
// Makes the table of the members of one node. It has a row for each member. If there are more members than rows, a row
// is for a NUMA node, a package or the whole node.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/topology.hpp"

namespace lockstep::command {

// Returns a heading and at most `most_rows` rows.
std::vector<std::string> member_table(const Topology& topology, int node, std::size_t most_rows);

// Returns the columns that UTF-8 text takes on a screen.
std::size_t screen_width(std::string_view words);
// Returns at most `columns` columns of the line, with a mark if something is missing.
std::string cut(std::string_view line, std::size_t columns);

}  // namespace lockstep::command
