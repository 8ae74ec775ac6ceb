// SPDX-License-Identifier: Apache-2.0
// The table of the members of one node: a row for each, or for each NUMA node, package or the whole
// node when there are more members than rows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/topology.hpp"

namespace lockstep::command {

// A heading and at most `most_rows` rows.
std::vector<std::string> member_table(const Topology& topology, int node, std::size_t most_rows);

// Columns that UTF-8 text takes on a screen.
std::size_t screen_width(std::string_view words);
// At most `columns` of them, with a mark where something is missing.
std::string cut(std::string_view line, std::size_t columns);

}  // namespace lockstep::command
