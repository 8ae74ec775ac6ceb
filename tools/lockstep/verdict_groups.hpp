// SPDX-License-Identifier: Apache-2.0
// What verdicts are made of: the members of each communicator, as far as they are known.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "collectives/engine/status_reader.hpp"

namespace lockstep::command {

struct ObservedMember {
  const status::ProcessSnapshot* process;
  const status::CommunicatorSnapshot* seen;
};

// By rank.
struct ObservedGroup {
  std::string name;
  int size = 1;
  std::map<int, ObservedMember> members = {};
};

// Members of one communicator have its number; of what has none, names and sizes are all that is known.
std::vector<ObservedGroup> groups_of(const std::vector<status::ProcessSnapshot>& processes);

// Returns the members of which no process was read, as the others know them, by rank. If several know one, the freshest
// note counts.
std::map<int, status::MemberSnapshot> unseen_members(const ObservedGroup& group);
// Returns "ranks 4-7 (processes 4711,4712 on node03): answered 400 ms ago, in call 812", alike members together.
std::vector<std::string> unseen_text(const std::map<int, status::MemberSnapshot>& members, std::size_t most_processes);

// Processes that wait for each other on several communicators, none of which can end; empty: there are none.
std::string circle_text(const std::vector<ObservedGroup>& groups);

}  // namespace lockstep::command
