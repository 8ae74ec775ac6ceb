// SPDX-License-Identifier: Apache-2.0
// Groups the processes that were read by communicator. Verdicts are made from these groups.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "collectives/engine/status_reader.hpp"

namespace lockstep::command {

// Refers to a member's process and its communicator there.
struct ObservedMember {
  const status::ProcessSnapshot* process;
  const status::CommunicatorSnapshot* seen;
};

// Holds the known members of one communicator, by rank.
struct ObservedGroup {
  std::string name;
  int size = 1;
  std::map<int, ObservedMember> members = {};
};

// Groups members by the id of their communicator. Without an id, the name and the size must do.
std::vector<ObservedGroup> groups_of(const std::vector<status::ProcessSnapshot>& processes);

// Returns the members of processes that were not read, as the others know them, by rank. If several know one, the
// latest note counts.
std::map<int, status::MemberSnapshot> unseen_members(const ObservedGroup& group);
// Returns "ranks 4-7 (processes 4711,4712 on node03): answered 400 ms ago, in call 812". Equal members share a line.
std::vector<std::string> unseen_text(const std::map<int, status::MemberSnapshot>& members, std::size_t most_processes);

// Describes processes that wait for each other on several communicators, none of which can end. It is empty if there
// are none.
std::string deadlock_text(const std::vector<ObservedGroup>& groups);

}  // namespace lockstep::command
